"""What only the lectures use: one module or folder for each lecture, and the widgets. It may import anything; nothing imports it."""
