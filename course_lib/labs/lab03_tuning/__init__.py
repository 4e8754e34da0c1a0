"""Lab 03, tune and keep: shapes and settings that change kernels, a choice in spite of noise, and a timing cache."""
