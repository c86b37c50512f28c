"""The kiosk kit: systemd units, and a watcher that keeps a moving picture on the screen."""

from __future__ import annotations
