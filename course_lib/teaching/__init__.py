"""Code that only the lectures use: one module or folder for each lecture, and the widgets. No other package imports it."""
