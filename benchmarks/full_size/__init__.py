"""One whole turn at full size on a CPU: how long it takes, how much memory, and how exact it is."""
