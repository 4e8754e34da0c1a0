"""Planted mistakes: for each exercise, wrong answers that readers write. The check has other words for each."""
