"""Lab 16, your network: about thirty lines of the learner's own PyTorch, with its engines and what was found in them."""
