"""Plain Chinese and Japanese sentences: people, motion, place, hour, clothes, who comes and leaves, stop.

No grammar of either language: templates over the words of `phrases/cjk.txt`. `{a}` acts, `{b}` is the other, `{n}` a
newcomer; `{m}` a motion, `{p}` a place, `{h}` an hour, `{g}` clothes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, Scene, follow

from .change import default_outfit, shows_the_same
from .lexicon import expand, load
from .sentences import Utterance, labels_of

_TEMPLATES = {
    "zh": {
        "start": "{a}(在|)({p}|){m}/{a}在{p}{m}/{h}，{a}在{p}{m}/{h}{a}在{p}{m}/{a}{h}在{p}{m}/在{p}，{a}{m}/让{a}在{p}{m}/{a}在{m}/{a}正在{m}/"
        "我想看{a}{m}/画{a}在{p}{m}/{p}，{a}{l}{m}/{a}{l}{m}/{a}穿着{g}在{p}{m}/穿着{g}的{a}在{p}{m}/{a}穿{g}，{m}/{a}和{b}在{p}{m}/"
        "{a}和{b}一起{m}/{a}和{b}{h}在{p}{m}/{a}跟{b}一起在{p}{m}/{a}与{b}{m}/{h}，{a}和{b}一起{m}",
        "still": "{a}/{a}在{p}/{a}和{b}在{p}/{h}，{a}在{p}/{a}穿着{g}在{p}/{a}和{b}/你好，{a}",
        "motion": "{m}/{u}{m}/现在{m}/{u}开始{m}/让{u}{m}/现在{u}{m}/{u}在{m}/{u}{l}{m}/{l}{m}/请{m}/{m}吧/然后{u}{m}/再{m}/接着{u}{m}/去{m}/{u}想{m}/"
        "{u}在{p}{m}/去{p}{m}/{u}去{p}{m}/到{p}{m}/{u}正在{m}",
        "place": "去{p}/到{p}/在{p}/现在在{p}/{u}去{p}/{u}到{p}去/换到{p}/{p}/场景换成{p}/背景是{p}/我们去{p}/回到{p}/来到{p}/{u}来到{p}",
        "hour": "{h}/现在是{h}/到了{h}/变成{h}/换成{h}/{h}了",
        "wear": "{a}穿上{g}/给{a}穿上{g}/{a}穿{g}/{a}换上{g}/让{a}穿{g}/{a}换成{g}/{a}穿着{g}",
        "wear_all": "穿上{g}/换上{g}/穿{g}/{u}穿上{g}/换成{g}/{u}都穿{g}",
        "join": "{n}来了/{n}也来了/{n}加入/加上{n}/{n}过来/{n}也在/和{n}一起/{n}也一起{m}/{n}来一起{m}/{a}遇见{n}/{a}碰到{n}/叫{n}来/带上{n}",
        "leave": "{x}走了/{x}离开/{x}回家了/{x}离开了/不要{x}/{x}不见了/让{x}走/{x}回家/去掉{x}/只有{a}/只要{a}/只剩{a}/{x}退出",
        "swap": "换成{n}/换{n}/{n}代替{a}/不是{a}，是{n}/改成{n}/把{a}换成{n}/让{n}来，{a}走",
        "stop": "停/停下/停下来/别动/不要{w}/别{w}/别{w}了/不要再{w}了/停止{w}/站住/不{w}了",
        "to": "{a}向{b}挥手=wave/{a}对{b}挥手=wave/{a}跟{b}跳舞=dance/{a}和{b}跳舞=dance/{a}追{b}=run/{a}向{b}鞠躬=bow/{a}坐在{b}旁边=sit/{a}跳过{b}=jump",
    },
    "ja": {
        "start": "{a}が{m}/{a}が{p}で{m}/{a}は{p}で{m}/{p}で{a}が{m}/{h}、{a}が{p}で{m}/{a}が{h}に{p}で{m}/{a}を{m}/{a}が{l}{m}/{p}、{a}が{m}/"
        "{g}を着た{a}が{p}で{m}/{a}は{g}を着て{m}/{a}と{b}が{p}で{m}/{a}と{b}が{m}/{a}と{b}が一緒に{m}/{h}に{a}と{b}が{m}/{a}、{m}/{p}で{m}{a}",
        "still": "{a}/{a}が{p}に/{a}と{b}が{p}に/{h}、{a}が{p}に/{a}が{p}にいる/{a}と{b}がいる/{g}を着た{a}/こんにちは、{a}",
        "motion": "{m}/{u}が{m}/今度は{m}/{u}は{m}/次に{m}/{l}{m}/{u}が{l}{m}/それから{m}/{m}ください/{m}！/そして{u}が{m}/{p}で{m}/{u}が{p}で{m}/"
        "{p}に行って{m}/さあ{m}/もう{m}",
        "place": "{p}/{p}で/{p}に行く/{p}へ/{p}へ行こう/{p}に行こう/場所は{p}/{u}が{p}に行く/今は{p}/背景は{p}/{p}に変えて/{p}に戻る/{p}に来た",
        "hour": "{h}/{h}になる/{h}です/今は{h}/{h}にして/{h}になった/もう{h}",
        "wear": "{a}が{g}を着る/{a}に{g}を着せて/{a}は{g}/{a}が{g}に着替える/{a}が{g}を着て/{a}は{g}を着ている",
        "wear_all": "{g}を着る/{g}に着替える/{g}を着て/{u}が{g}を着る/{g}にして",
        "join": "{n}が来る/{n}も来た/{n}も/{n}も一緒に/{n}が来た/{n}も一緒に{m}/{n}と一緒に{m}/{n}を呼んで/{a}が{n}に会う/{n}が加わる/{n}を追加",
        "leave": "{x}が帰る/{x}が去る/{x}はいなくなる/{x}は帰った/{x}が行ってしまう/{x}を消して/{a}だけ/{a}だけにして/{x}はいらない/{x}がいなくなった/{x}さようなら",
        "swap": "{n}に変えて/{a}の代わりに{n}/{a}じゃなくて{n}/{n}に交代/{a}ではなく{n}/{a}を{n}に変えて",
        "stop": "止まって/止まれ/ストップ/やめて/{w}のをやめて/{w}のはやめて/動かないで/{w}のをやめる/もう{w}ない/じっとして",
        "to": "{a}が{b}に手を振る=wave/{a}が{b}と踊る=dance/{a}が{b}を追いかける=run/{a}が{b}におじぎする=bow/{a}が{b}の隣に座る=sit/{a}が{b}を飛び越える=jump",
    },
}  # fmt: skip
_THEY = {
    "zh": {1: ("他", "她", "它"), 2: ("他们", "她们", "两个人", "大家", "他们俩")},
    "ja": {1: ("彼", "彼女", "この子"), 2: ("二人", "みんな", "ふたり", "彼ら")},
}
_SAMPLES = {
    language: {kind: tuple(one for line in text.split("/") for one in expand(line)) for kind, text in kinds.items()}
    for language, kinds in _TEMPLATES.items()
}


def cjk_turn(rng: random.Random, before: Scene | None, worn: Mapping[str, str]) -> tuple[Scene, Utterance] | None:
    """A scene and a Chinese or Japanese text; None if the draw does not fit the game."""
    language = rng.choice(("zh", "ja"))
    shown = before.characters if before else ()
    kinds = ["motion", "motion", "place", "hour", "wear", "wear_all", "stop"]
    kinds += ["join", "swap", "to"] if len(shown) == 1 else ["leave", "leave", "to"]
    kind = rng.choice(kinds) if before else rng.choice(("start",) * 5 + ("still", "to"))
    template = rng.choice(_SAMPLES[language][kind])
    words = load("cjk")
    absent = rng.sample([name for name in CHARACTERS if name not in shown], 5 - len(shown))
    a, b = (rng.sample(shown, 2) if len(shown) == 2 else (*shown, *absent)[:2]) if before else rng.sample(CHARACTERS, 2)
    asked = {"a": a, "b": b, "n": absent[0], "x": b}
    motion, place, hour = rng.choice(MOTIONS), rng.choice(PLACES), rng.choice(("day", "night"))
    if kind == "stop" and (before is None or before.motion == "stand"):
        return None
    template, _, to = template.partition("=")
    people = shown
    if kind in ("start", "still", "to"):
        people = (a, b) if "{b}" in template else (a,)
    elif kind == "join":
        people = (*shown, absent[0])
    elif kind == "leave":
        people = (a,)
    elif kind == "swap":
        people = (absent[0],)
    outfit = rng.choice(OUTFITS)
    strong = rng.random() < 0.5

    def slot(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in asked:
            return words[f"{language} {asked[name]}"].text(rng)
        if name == "u":
            return rng.choice(_THEY[language][len(shown)])
        if name == "l":
            return words[f"{language} {'fast' if strong else 'slow'}"].text(rng)
        key = {"m": motion, "w": before.motion if before else "", "p": place, "h": hour, "g": outfit}[name]
        return words[f"{language} {key}"].text(rng)

    text = re.sub(r"\{(\w)\}", slot, template)
    named = "{m}" in template or to or kind in ("stop", "still")
    after_motion = to or ("stand" if kind in ("stop", "still") else motion if "{m}" in template else "")
    wearers = people if kind == "wear_all" else (a,) if "{g}" in template else ()
    outfits = tuple(outfit if name in wearers else default_outfit(name, before, worn) for name in people)
    level = 3 if named or before is None else before.level
    if "{l}" in template:
        level = 4 if strong else 2
    scene = Scene(
        people,
        after_motion or (before.motion if before else "stand"),
        level,
        place if "{p}" in template else before.place if before else "meadow",
        (hour == "night") if "{h}" in template else before.night if before else False,
        outfits,
        seed=rng.getrandbits(31),
    )
    text += rng.choice(("", "", "。", "。", "！", "？" if language == "zh" else "よ。"))
    scene = follow(before, scene)
    notes = ("no_motion",) if kind == "still" else ("goes_on",) if shows_the_same(before, scene) else ()
    return scene, Utterance(text, labels_of(scene), frozenset(), frozenset(notes))
