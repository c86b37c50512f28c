"""The procedural cartoon world that pocket is trained on: scenes, captions and rendered clips."""
