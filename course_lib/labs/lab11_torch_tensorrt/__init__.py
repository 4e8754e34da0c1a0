"""Lab 11, compile inside PyTorch: a converter, a module that is one engine, and settings for dynamic traffic."""
