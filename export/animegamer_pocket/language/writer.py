"""Writes one turn: chooses frames, fills their slots, and joins the sentences."""

from __future__ import annotations

import re

from .fitting import NEEDS, Fitting
from .frames import Frame, choose
from .lexicon import load
from .nouns import Nouns
from .scenery import Scenery
from .text import cap, lower, with_an
from .verbs import Verbs
from .voices import VOICE_BY_NAME

_PIECE = re.compile(r"\{([^{}]+)\}|<([^<>|]*)\|([^<>|]*)>")
_VERBS = frozenset(("v", "v1", "V1", "v+", "vb", "pv", "ing", "Ing"))
_GETTING_SOMEWHERE = ("walk", "run", "fly", "jump", "dance")
_HERE_SHARE = 0.12
"""How often a turn that stays names a thing of its place: "on the sand" means another place elsewhere."""

_BACK_SHARE = 0.75
"""How often returning characters are said to be back."""

_OF_EVERYBODY = ("/outfit {gid}", "/wear {gid}", "outfit={gid}", "/skin {gid}", "/unequip {oldgid}")
_STEPS = {1: "up 1", 2: "up 2", -1: "down 1", -2: "down 2"}


class Writer(Fitting, Nouns, Verbs, Scenery):
    """Writes the sentences of one utterance."""

    def write(self) -> str | None:
        """The text, or None if the draw makes no sense."""
        rng = self.rng
        sentences: list[tuple[int, str]] = []
        main = self._main()
        if main is None:
            return None
        if main:
            sentences.append((0, main))
            self.introduced = True
        short = not main
        order = [field for field in ("place", "night", "outfits", "level", "position") if field in self.pending]
        rng.shuffle(order)
        for field in order:
            if field not in self.pending:
                continue
            place = rng.choice((-1, 1)) if field in ("place", "night") else 1
            if field == "outfits" and main and self.plan.kind in ("keep", "leave") and rng.random() < 0.25:
                place = -1
            self.early = place < 0 and self.plan.kind == "leave"
            for text in self._separate(field, short and rng.random() < 0.75, place):
                sentences.append((place, text))
        if not sentences:
            return None
        texts = [text for _, text in sorted(sentences, key=lambda pair: pair[0])]
        return self._joined(self._decorated(texts))

    def _main(self) -> str | None:
        """The sentence about people and motion; "" if the turn states neither."""
        plan, rng = self.plan, self.rng
        kind = plan.kind
        if not plan.names_motion and kind == "start":
            self.said.add("who")
            return self._from("still")
        if not plan.names_motion and kind == "keep":
            if self.pending and rng.random() < 0.8:
                return ""
            self.repeats = True
            self._pick_motion()
            return self._from("again")
        if not plan.names_motion:
            self.said.add("who")
            return self._from(f"back-{kind}-same" if plan.back and rng.random() < _BACK_SHARE else f"{kind}-same")
        changed = self.before is None or self.before.motion != self.after.motion
        if kind != "keep":
            self.said.add("who")
        self.said.add("motion")
        if not changed and kind == "keep" and self.before and self._level_is_kept():
            self.repeats = True
            self._pick_motion()
            return self._from("again")
        if not changed and self.before and self.before.level != 3 and "level" not in self.pending:
            self.level_known = False
        self._pick_motion()
        if kind == "keep":
            return self._from("change" if changed and rng.random() < 0.16 else "keep")
        if plan.back and rng.random() < _BACK_SHARE:
            return self._from(f"back-{kind}")
        if kind == "join" and rng.random() < 0.22:
            return self._from("start")
        return self._from(kind)

    def _level_is_kept(self) -> bool:
        return self.before is not None and (self.after.level == self.before.level)

    def _from(self, section: str) -> str | None:
        frame = choose(self.rng, self.voice, section, self._fits)
        if frame is None:
            frame = choose(self.rng, VOICE_BY_NAME["plain"], section, self._fits)
        if frame is None:
            return None
        if section == "still" and not self.pending:
            return None
        if section.endswith("-same"):
            self.repeats = True
        if frame.tags & {"day", "night"}:
            self._done("night")
        if self.vp.strength and frame.slots & _VERBS and self.rng.random() < 0.6:
            self._done("level")
            self.level_known = False
        self.in_main = True
        self.attaching = section not in ("again", "keep", "change")
        text = self._fill(frame)
        self.in_main = False
        if (
            self.rng.random() < 0.12
            and "{t}" in frame.text
            and not frame.text.startswith(("{loc}", "[", "*", "/", "{worn}"))
        ):
            text = self._front(text)
        return text

    def _fill(self, frame: Frame) -> str:
        parts: list[str] = []
        position = 0
        text = frame.text
        self.apart = len(self.plan.new) == 1 and re.search(r"(and|plus|with|by|&|\+|,) \{n\}", text) is None
        if "n.worn" in frame.slots:
            self.attaching = False
        for match in _PIECE.finditer(text):
            parts.append(text[position : match.start()])
            position = match.end()
            if match.group(1) is None:
                parts.append(match.group(2) if not self.plural else match.group(3))
                continue
            genitive = text[position : position + 2] == "'s"
            value = self._slot(match.group(1), genitive)
            ended = re.search(r"[.!?] $", "".join(parts)[-2:]) is not None
            parts.append(cap(value) if ended else value)
        parts.append(text[position:])
        return "".join(parts)

    def _slot(self, slot: str, genitive: bool = False) -> str:
        need = NEEDS.get(slot)
        value = self._noun_slot(slot, genitive)
        for fill in (self._motion_slot, self._manner_slot, self._tail_slot, self._scene_slot, self._clothes_slot):
            value = fill(slot) if value is None else value
        assert value is not None
        if need is not None:
            self._done(need)
            if need == "outfits":
                self.clothes.clear()
        return value

    def _tail_slot(self, slot: str) -> str | None:
        if slot == "t":
            return self._tail()
        if slot == "T":
            return self._tail(must=True)
        if slot == "t.":
            tail = self._tail()
            return f" {cap(tail.strip())}." if tail else ""
        return None

    def _tail(self, must: bool = False) -> str:
        rng, parts = self.rng, []
        if "level" in self.pending and not self.repeats and not must and rng.random() < 0.75:
            parts.append(self._manner())
        places: list[str] = []
        if "place" in self.pending and rng.random() < (1.0 if must else 0.6):
            places.append(self._place_at(still=must or self.repeats or self.after.motion not in _GETTING_SOMEWHERE))
            self._done("place")
        if "night" in self.pending and rng.random() < (1.0 if must and not places else 0.5):
            places.append(load("hours")[f"{self.night} at"].text(rng))
            self._done("night")
        rng.shuffle(places)
        parts.extend(places)
        if rng.random() < 0.2:
            parts.reverse()
        if "outfits" in self.pending and self._one_group() and self._tail_dresses() and rng.random() < 0.45:
            self.wearers = self.after.characters
            parts.insert(0 if rng.random() < 0.6 else len(parts), self._clothes_slot("worn"))
            self.clothes.clear()
            self._done("outfits")
        if "position" in self.pending and rng.random() < 0.8:
            parts.append(load("words")[self.plan.spot].text(rng))
            self._done("position")
        if self._place_is_known() and not must and rng.random() < _HERE_SHARE:
            parts.append(load("places")[f"{self.after.place} here"].text(rng))
        if not parts and not must and rng.random() < self.voice.decorated * 0.6:
            parts.append(load("words")["why"].text(rng))
        return "".join(" " + part for part in parts)

    def _place_is_known(self) -> bool:
        """Whether the turn stays where it was without naming the place."""
        stays = self.before is not None and self.before.place == self.after.place
        return stays and "place" not in self.said and "place" not in self.pending and not self.override.place

    def _tail_dresses(self) -> bool:
        return self.plan.kind in ("start", "keep", "swap") and not self.repeats and not self.voice.past

    def _front(self, text: str) -> str:
        fields = [field for field in ("place", "night") if field in self.pending]
        if not fields:
            return text
        field = self.rng.choice(fields)
        front = self._place_at() if field == "place" else load("hours")[f"{self.night} at"].text(self.rng)
        self._done(field)
        return f"{front}{self.rng.choice((', ', ', ', ' '))}{lower(text)}"

    def _separate(self, field: str, short: bool, place: int) -> list[str]:
        rng = self.rng
        if field == "level":
            return self._level_sentence()
        if field == "position":
            self._done("position")
            return [load("words")[self.plan.spot].text(rng)]
        if field == "outfits":
            return self._clothes_sentences(short)
        section = {"place": "place", "night": "hour"}[field]

        def fits(frame: Frame) -> bool:
            known = self.introduced and (place > 0 or self.plan.kind == "keep")
            return self._fits(frame) and (known or not frame.slots & {"s", "o", "all", "all.n"})

        frame = choose(rng, self.voice, f"short-{section}" if short and not self.voice.only_own else section, fits)
        frame = frame or choose(rng, VOICE_BY_NAME["plain"], section, fits)
        if frame is None:
            return []
        self.subject = self._pronoun()
        text = self._fill(frame)
        self._done(field)
        return [text]

    def _level_sentence(self) -> list[str]:
        rng, before, after = self.rng, self.before, self.after
        section, text = "level", ""
        if before is not None and not self.plan.names_motion or self.repeats:
            assert before is not None
            steps = [
                s
                for s in _STEPS
                if min(5, max(1, before.level + s)) == after.level and (s > 0) == (after.level >= before.level)
            ]
            steps = [s for s in steps if before.level + s == after.level or rng.random() < 0.3]
            if steps and rng.random() < 0.6:
                section, text = "step", load("manners")[_STEPS[rng.choice(steps)]].text(rng)
        frame = choose(rng, self.voice, section, self._fits) or choose(rng, VOICE_BY_NAME["plain"], section, self._fits)
        assert frame is not None
        if "lv" in frame.slots and text:
            return []
        self.subject = self._pronoun()
        if text:
            text = text.replace("{pos}", self._who_pronoun().possessive)
            frame = Frame(frame.text.replace("{m}", text).replace("{m.c}", cap(text)), frame.slots, frame.tags)
        filled = self._fill(frame)
        self._done("level")
        return [filled]

    def _clothes_sentences(self, short: bool) -> list[str]:
        rng, texts = self.rng, []
        groups = [self.after.characters] if self._one_group() else [(name,) for name in self.clothes]
        for wearers in groups:
            self.wearers = wearers
            everybody = wearers == self.after.characters
            outfit, old = self.clothes[wearers[0]], self._old_outfit()
            section = "off" if outfit == "everyday" and old not in ("", "everyday") and rng.random() < 0.7 else "wear"
            if short and everybody and not self.voice.only_own:
                section = f"short-{section}"

            def fits(frame: Frame, old: str = old, outfit: str = outfit) -> bool:
                if frame.slots & {"oldg", "oldg.b", "oldgid"} and old in ("", "everyday", outfit):
                    return False
                if frame.slots & {"why", "why.l"} and (
                    old == outfit or (outfit == "everyday" and old not in ("raincoat", "party"))
                ):
                    return False
                if frame.text in _OF_EVERYBODY and self.wearers != self.after.characters:
                    return False
                if self.wearers != self.after.characters and not frame.slots & {"s", "o", "s.id"}:
                    return False
                others = frame.slots & {"other", "otherpos", "other.pro"}
                if others and (len(self.clothes) > 1 or self.wearers == self.after.characters):
                    return False
                tags = frame.tags
                return not (("pair" in tags and len(self.wearers) < 2) or ("one" in tags and len(self.wearers) > 1))

            frame = choose(rng, self.voice, section, fits) or choose(rng, VOICE_BY_NAME["plain"], section, fits)
            if frame is None:
                frame = choose(rng, VOICE_BY_NAME["plain"], "wear", fits)
            assert frame is not None
            kept = dict(self.clothes)
            self.subject = self._wearer()
            texts.append(self._fill(frame))
            self.clothes = {name: outfit for name, outfit in kept.items() if name not in wearers}
        self._done("outfits")
        return texts

    def _decorated(self, texts: list[str]) -> list[str]:
        rng, words, often = self.rng, load("words"), self.voice.decorated
        if rng.random() < often and re.match(r"[A-Za-z]", texts[0]):
            texts[0] = f"{words['lead'].text(rng)}{rng.choice((' ', ', '))}{lower(texts[0])}"
        if rng.random() < often * 0.3 and not texts[-1].endswith(("?", "!", "]", "*")):
            texts[-1] = f"{texts[-1].rstrip('.')}{', '}{words['close'].text(rng)}"
        if rng.random() < often * 0.25:
            texts.insert(0, words["aside"].text(rng))
        if rng.random() < often * 0.25 and self.voice.name not in ("terse", "stage"):
            texts.insert(rng.choice((0, len(texts))), words["filler"].text(rng))
        moody = 0.06 if self.voice.noise >= 0.5 else 0.015
        if rng.random() < moody and self.voice.name not in ("console", "tale", "old"):
            texts[-1] = f"{texts[-1]} {load('emoji')['mood'].text(rng)}"
        return texts

    def _joined(self, texts: list[str]) -> str:
        rng, voice = self.rng, self.voice
        joiner = rng.choice(voice.joiners)
        sentence = joiner.strip()[:1] in (".", "!", "?") or "\n" in joiner or joiner == "... "
        result = texts[0]
        for text in texts[1:]:
            if voice.name == "console":
                result += joiner + text
            elif result.endswith(("?", "!", ".", "]", "*", ":")):
                result += " " + cap(text)
            elif sentence:
                result += joiner + cap(text)
            else:
                link = ", " if joiner.strip(", ") == "and" and re.match("(and|but|ok|not|from)\\b", text) else joiner
                result += link + lower(text)
        if not voice.quiet:
            result = cap(result)
        else:
            result = result if rng.random() < 0.3 else result[:1].lower() + result[1:]
        if not result.endswith(("?", "!", ".", "]", "*", *load("emoji")["mood"].texts)):
            result += rng.choice(voice.ends)
        if not voice.quiet:
            result = re.sub(r"(?<=[a-z][.!?] )[a-z]", lambda match: match.group().upper(), result)
        return with_an(result)
