"""Lab 14, four bits: the decoder's weights in as few bits as a budget of lost bits per byte allows."""
