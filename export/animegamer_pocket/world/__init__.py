"""The procedural cartoon world that pocket is trained on: scenes, their texts and their pictures."""
