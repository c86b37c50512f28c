"""How well plans and precisions keep what the exact ones show."""
