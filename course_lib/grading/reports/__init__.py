"""What a student and an instructor read: reports, class pages, the leaderboard, and exports to other systems."""
