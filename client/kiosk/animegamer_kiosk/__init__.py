"""The kiosk kit: units for systemd, and a watcher that keeps a moving picture on the screen."""

from __future__ import annotations
