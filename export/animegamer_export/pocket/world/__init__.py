"""The procedural cartoon world that pocket is trained on."""
