"""What a player says and what a game knows."""
