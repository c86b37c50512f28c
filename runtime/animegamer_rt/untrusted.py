"""Strict parsing of text from outside: numbers, keys, paths, addresses, web origins, and text for a terminal."""

from __future__ import annotations

import ipaddress
import os
import re
import unicodedata
from pathlib import Path
from urllib.parse import urlsplit

MAX_DIGITS = 19
"""Digits of the largest number of 64 bits."""
MAX_PATH_BYTES, MAX_NAME_BYTES = 4095, 255
"""Limits of Linux; other systems have none that are larger."""
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
KEY_CHARACTERS = 40
"""32 bytes in Z85: five characters for every four bytes."""
_WHOLE = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}")
WEB_PORTS = {"http": 80, "https": 443}
"""Ports that browsers omit from an origin."""
_WEB_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_DECIMAL = re.compile(r"-?(?:[0-9]{1,19}(?:\.[0-9]{0,19})?|\.[0-9]{1,19})(?:[eE][+-]?[0-9]{1,2})?")


def whole_number(text: str, low: int, high: int) -> int:
    """Parse a whole number: ASCII digits, perhaps with a minus sign. Raises ValueError."""
    if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
        raise ValueError(f"{short(text)} is not a whole number from {low} to {high}")
    return int(text)


def decimal_number(text: str) -> float:
    """Parse a finite number in ASCII digits: 2, 0.5 or 1e-3. Raises ValueError."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{short(text)} is not a number such as 0.5")
    return float(text)


def path(text: str) -> Path:
    """Parse a path; a leading ~ is a home folder. Raises ValueError for text that cannot be a path.

    It need not exist. A name whose bytes are not UTF-8 is accepted, as Linux allows it.
    """
    if not text:
        raise ValueError("the path is empty; is a shell variable unset?")
    if "\0" in text:
        raise ValueError(f"{short(text)} is not a path: it holds a NUL character")
    try:
        found = Path(text).expanduser()
        encoded = os.fsencode(found)
    except (RuntimeError, KeyError) as error:
        raise ValueError(f"{short(text)} is not a path: no such user; write ./~NAME for a file of that name") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"{short(text)} is not a path: this system cannot encode it") from error
    if len(encoded) > MAX_PATH_BYTES or any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in found.parts):
        raise ValueError(f"{short(text)} is not a path: too long; expected at most {MAX_NAME_BYTES} bytes per name")
    return found


def is_key(text: str | bytes) -> bool:
    """Whether this is a CURVE key in Z85: 40 characters that stand for 32 bytes."""
    try:
        text = text if isinstance(text, str) else text.decode("ascii")
    except UnicodeDecodeError:
        return False
    if len(text) != KEY_CHARACTERS or set(text) - set(Z85):
        return False
    groups = (text[at : at + 5] for at in range(0, KEY_CHARACTERS, 5))
    return all(sum(Z85.index(one) * 85 ** (4 - k) for k, one in enumerate(group)) < 2**32 for group in groups)


def bare_host(text: str) -> str:
    """A host without the brackets of an IPv6 address; `localhost` becomes 127.0.0.1."""
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return "127.0.0.1" if host == "localhost" else host


def bracketed(host: str) -> str:
    """A host as written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_address(host: str) -> bool:
    """Whether this is an IP address, without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def listening_address(text: str) -> tuple[str, int]:
    """Parse `[ADDRESS:]PORT` into host and port; the host is an IP address, 127.0.0.1 by default. Raises ValueError."""
    host, _, port = text.rpartition(":")
    host = bare_host(host) or "127.0.0.1"
    if not is_address(host):
        raise ValueError(f"{short(text)} is not [ADDRESS:]PORT")
    return host, whole_number(port, 0, 65535)


def same_host(one: str, other: str) -> bool:
    """Whether two addresses to listen on would share a port: the same, or one is a wildcard."""
    return one == other or bool({"0.0.0.0", "::"} & {one, other})


def host_name(netloc: str) -> str:
    """The host in `HOST[:PORT]` of a browser's header; empty if there is none."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def web_origin(text: str) -> str:
    """The web origin in a text, as browsers send it; empty if it is not one.

    That is: no path, no user, no default port, lower case, and an ASCII host.
    """
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:
        return ""
    host = bracketed(host)
    if parts.scheme not in WEB_PORTS or not _WEB_HOST.fullmatch(host) or port == 0:
        return ""
    return f"{parts.scheme}://{host}" + ("" if port in (None, WEB_PORTS[parts.scheme]) else f":{port}")


def plain(text: str, *, lines: bool = False) -> str:
    """Text made safe for a terminal: controls, escapes, invisible or reordering characters appear as \\x1b, \\u202e.

    lines: keep line breaks and tabs.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if _shown(one, lines) else _escaped(one) for one in text)


def short(text: str, length: int = 60) -> str:
    """A text in quotes, cut to fit a message."""
    return repr(text if len(text) <= length else text[: length - 2] + "..")


def _shown(character: str, lines: bool) -> bool:
    if character in "\n\t":
        return lines
    # A joiner between letters is part of words and emoji in many scripts; other format characters are not.
    return character in "\u200c\u200d" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
