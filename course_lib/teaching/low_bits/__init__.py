"""What lecture 16 alone needs: graphs with weights of four and eight bits, the loss on held-out text, and figures."""
