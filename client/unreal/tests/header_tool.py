"""Checks the plugin's headers as Unreal's header tool would, and writes their .generated.h for the stubs.

python client/unreal/tests/header_tool.py FOLDER     exit code 1 and a line for each rule that is broken

The rules are those of Epic's pages on Properties, UFunctions, Structs, Enums, Delegates and Blueprint async actions.
Four are stricter than Epic's, as this plugin needs no more: enums are of class E..., and Blueprint's; what Blueprints
call is not private; delegates are BlueprintAssignable; a UFUNCTION takes what Blueprints hold.
The generated files hold what the stubs need of reflection: which objects a garbage collector finds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "Source" / "AnimeGamer"
COUNTS = ("", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
"""Of a delegate's parameters, in the names of the macros that declare one; there are none for more."""
VALUES = {"bool", "uint8", "int32", "int64", "float", "double", "FString", "FName", "FText"}
"""What a Blueprint can hold, besides objects, enums and structs."""
NATIVE_ONLY = {"int8", "int16", "uint16", "uint32", "uint64"}
"""What a property can be, if no Blueprint sees it."""
SEEN = {"BlueprintReadOnly", "BlueprintReadWrite"}
ASYNC = {"UBlueprintAsyncActionBase", "UCancellableAsyncAction"}


@dataclass
class Member:
    """A property or a function. type: of a property, or what a function returns. line: in its file."""

    line: int
    specifiers: set[str]
    type: str
    name: str
    access: str
    parameters: list[tuple[str, str]] | None = None


@dataclass
class Type:
    """A UCLASS or USTRUCT. body: the line of its GENERATED_BODY."""

    kind: str
    name: str
    base: str
    line: int
    body: int = 0
    members: list[Member] = field(default_factory=list)
    plain: list[Member] = field(default_factory=list)


@dataclass
class Header:
    """What a header declares. delegates: names to parameters."""

    file: Path
    types: list[Type] = field(default_factory=list)
    enums: set[str] = field(default_factory=set)
    delegates: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def breaks(self, line: int, rule: str) -> None:
        """Note a broken rule."""
        self.broken.append(f"{self.file.name}:{line}: {rule}")


def split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "(<{") - (letter in ")>}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def parameters_of(text: str) -> list[tuple[str, str]]:
    """The types and names of a function's parameters."""
    pairs = (re.match(r"(.*?[\s*&])(\w+)(?:\s*=.*)?$", part) for part in split(text))
    return [(pair[1].strip(), pair[2]) for pair in pairs if pair]


def without_comments(text: str) -> str:
    """The same lines with blank comments."""
    blank = lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    return re.sub(r'"[^"\n]*"|/\*.*?\*/|//[^\n]*', blank, text, flags=re.DOTALL)


def read(file: Path) -> Header:
    """Read a header; notes what is wrong with its layout."""
    header, text = Header(file), without_comments(file.read_text(encoding="utf-8"))
    line_of = lambda at: text.count("\n", 0, at) + 1  # noqa: E731
    includes = re.findall(r'#include "([^"]+)"', text)
    reflected = re.search(r"\b(UCLASS|USTRUCT|UENUM)\(|DECLARE_DYNAMIC", text)
    if reflected and (not includes or includes[-1] != f"{file.stem}.generated.h"):
        header.breaks(1, f'"{file.stem}.generated.h" must be the last #include')
    for match in re.finditer(r"^#if(?!def __).*?^#endif", text, re.MULTILINE | re.DOTALL):
        if re.search(r"\bU(PROPERTY|FUNCTION|CLASS|STRUCT|ENUM)\(", match[0]) and "WITH_EDITOR" not in match[0]:
            header.breaks(line_of(match.start()), "reflected declarations must not be inside #if")
    for match in re.finditer(r"UENUM\((.*?)\)\s*enum\s+(class\s+)?(\w+)\s*(:\s*\w+)?", text):
        header.enums.add(match[3])
        if not match[2] or (match[4] or "").replace(" ", "") != ":uint8" or match[3][0] != "E":
            header.breaks(line_of(match.start()), f"{match[3]}: a Blueprint's enum is `enum class E... : uint8`")
    for match in re.finditer(r"DECLARE_DYNAMIC_MULTICAST_DELEGATE(?:_(\w+?)Params?)?\(([^;]*)\);", text, re.DOTALL):
        name, *words = split(match[2])
        given = [(words[n], words[n + 1]) for n in range(0, len(words) - 1, 2)]
        header.delegates[name] = given
        if (match[1] or "") not in COUNTS or COUNTS.index(match[1] or "") * 2 != len(words):
            header.breaks(
                line_of(match.start()), f"{name}: {len(words) / 2:g} parameters; the macro takes another number"
            )
        if name[0] != "F":
            header.breaks(line_of(match.start()), f"{name}: a delegate's name begins with F")
    for match in re.finditer(r"\b(UCLASS|USTRUCT)\((?:[^()]|\([^()]*\))*\)\s*(?:class|struct)\s+(?:\w+_API\s+)?(\w+)"
                             r"(?:\s*:\s*public\s+(\w+))?\s*\{", text):  # fmt: skip
        end = text.index("\n};", match.end())
        made = Type(match[1], match[2], match[3] or "", line_of(match.start()))
        header.types.append(made)
        read_body(header, made, text[match.end() : end], line_of(match.end()))
    return header


def read_body(header: Header, made: Type, body: str, first: int) -> None:
    """Read the members of a class or struct whose body begins in line `first`."""
    access = "private" if made.kind == "UCLASS" else "public"
    item = re.compile(
        r"(?P<body>GENERATED_BODY\(\))|(?P<access>public|private|protected):(?!:)"
        r"|(?P<macro>UPROPERTY|UFUNCTION)\((?P<words>(?:[^()]|\([^()]*\))*)\)"
        r"|(?P<declared>(?:[^;{}:\"]|::|\"[^\"\n]*\")+)(?P<end>;|\{[^{}]*\})"
    )
    words: set[str] | None = None
    macro, at = "", 0
    while next_word := re.compile(r"[^\s;]").search(body, at):
        match = item.match(body, next_word.start())
        if match is None:
            header.breaks(first + body.count("\n", 0, next_word.start()), f"{made.name}: not understood")
            return
        at = match.end()
        line = first + body.count("\n", 0, match.start())
        if match["body"]:
            made.body = made.body or line
        elif match["access"]:
            access = match["access"]
        elif match["macro"]:
            macro, words = match["macro"], {part.strip() for part in split(match["words"])}
        else:
            declared = re.sub(r"\s+", " ", match["declared"].strip())
            for member in members_of(declared, line, words or set(), access):
                (made.members if words is not None else made.plain).append(member)
                if words is not None and (member.parameters is not None) != (macro == "UFUNCTION"):
                    header.breaks(line, f"{member.name}: {macro} stands before it")
            words = None
    if made.body == 0:
        header.breaks(made.line, f"{made.name}: GENERATED_BODY() is missing")


def members_of(declared: str, line: int, words: set[str], access: str) -> Iterator[Member]:
    """The members of one declaration: `int32 A = 0, B = 1` are two."""
    if declared.startswith(("friend", "typedef", "using", "class ", "struct ")) or not declared:
        return
    function = re.match(
        r"(?:virtual |static )*(.*?[\s*&])?(~?\w+)\((.*)\)(?: const)?(?: override)?(?: = .*)?$", declared
    )
    if function and "= " not in declared.split("(")[0]:
        yield Member(line, words, (function[1] or "").strip(), function[2], access, parameters_of(function[3]))
        return
    first, *more = split(declared)
    match = re.match(r"(.*?[\s*&>])(\w+)(?:\s*=.*)?$", first)
    if match:
        for name in (match[2], *(re.split(r"\W", each)[0] for each in more)):
            yield Member(line, words, match[1].strip(), name, access)


class Rules:
    """Checks headers that know each other's types."""

    def __init__(self, headers: list[Header]) -> None:
        self.headers = headers
        self.structs = {made.name for header in headers for made in header.types if made.kind == "USTRUCT"}
        self.classes = {made.name for header in headers for made in header.types if made.kind == "UCLASS"}
        self.enums = {name for header in headers for name in header.enums}
        self.delegates = {name: each for header in headers for name, each in header.delegates.items()}

    def is_of_blueprints(self, kind: str) -> bool:
        """Whether a Blueprint can hold this type."""
        kind = re.sub(r"^const\s+|\s*&$", "", kind).strip()
        box = re.fullmatch(r"(TArray|TSet|TMap|TObjectPtr|TSubclassOf)<(.*)>", kind)
        if box and box[1] in ("TObjectPtr", "TSubclassOf"):
            return re.fullmatch(r"[UA]\w+", box[2]) is not None
        if box:
            parts = split(box[2])
            nested = any(part.startswith(("TArray", "TSet", "TMap")) for part in parts)
            return not nested and all(map(self.is_of_blueprints, parts))
        if kind.endswith("*"):
            return re.fullmatch(r"(class )?[UA]\w+", kind[:-1].strip()) is not None
        return kind in VALUES | self.structs | self.enums

    def check(self) -> list[str]:
        """Every broken rule, with file and line."""
        for header in self.headers:
            for name, given in header.delegates.items():
                for kind, word in given:
                    if not self.is_of_blueprints(kind):
                        header.breaks(1, f"{name}: no Blueprint has a pin of type {kind} ({word})")
            for made in header.types:
                self.check_type(header, made)
        return [line for header in self.headers for line in header.broken]

    def check_type(self, header: Header, made: Type) -> None:
        """A class or struct, with its members."""
        letters = "F" if made.kind == "USTRUCT" else "UA"
        if made.name[0] not in letters or (made.kind == "UCLASS" and not made.base):
            header.breaks(made.line, f"{made.name}: a {made.kind} begins with {letters}, and a class has a base")
        names: dict[str, Member] = {}
        for member in made.members:
            if member.name.lower() in names:
                header.breaks(member.line, f"{member.name}: names are unlike, also without regard to capitals")
            names[member.name.lower()] = member
            self.check_member(header, made, member)
        for member in made.members:
            for _, name in member.parameters or ():
                if name.lower() in names and names[name.lower()].parameters is None:
                    header.breaks(member.line, f"{member.name}: its parameter {name} hides a property")
        for member in made.plain:
            if member.parameters is None and re.match(r"(TObjectPtr<|[UA][A-Z]\w+\s*\*)", member.type):
                header.breaks(member.line, f"{member.name}: an object without UPROPERTY is collected")
        if made.base in ASYNC:
            assigned = [each for each in made.members if "BlueprintAssignable" in each.specifiers]
            kinds = {each.type for each in assigned}
            if len(kinds) != 1:
                rule = "an async node has the pins of its first delegate alone, so all are of one type"
                header.breaks(made.line, f"{made.name}: {rule}; here: {', '.join(sorted(kinds)) or 'none'}")
            if not any("BlueprintInternalUseOnly" in " ".join(each.specifiers) for each in made.members):
                header.breaks(made.line, f'{made.name}: its factory needs meta = (BlueprintInternalUseOnly = "true")')

    def check_member(self, header: Header, made: Type, member: Member) -> None:
        """A property or a function."""
        words = {re.split(r"[\s=(]", word)[0] for word in member.specifiers}
        breaks = lambda rule: header.breaks(member.line, f"{member.name}: {rule}")  # noqa: E731
        if member.parameters is not None:
            if made.kind == "USTRUCT":
                breaks("a USTRUCT has no UFUNCTION")
            called = words & {"BlueprintCallable", "BlueprintPure"}
            if called and "Category" not in words:
                breaks("what Blueprints call needs a Category")
            if called and member.access == "private":
                breaks("what Blueprints call is not private")
            for kind, name in (*member.parameters, (member.type, "the result")):
                if kind not in ("", "void") and not self.is_of_blueprints(kind):
                    breaks(f"{name} has the type {kind}, which no UFUNCTION takes")
            return
        assignable = "BlueprintAssignable" in words
        if assignable != (member.type in self.delegates):
            breaks("a dynamic multicast delegate is BlueprintAssignable, and nothing else is")
        if not assignable and not self.is_of_blueprints(member.type):
            if member.type not in NATIVE_ONLY or words & SEEN or "EditAnywhere" in words:
                breaks(f"no property of Blueprints has the type {member.type}")
        if words & SEEN and member.access == "private" and "AllowPrivateAccess" not in " ".join(member.specifiers):
            breaks("what Blueprints see is not private")
        if (words & SEEN or "EditAnywhere" in words) and "Category" not in words:
            breaks("what the editor or Blueprints see needs a Category")


def check_bindings(headers: list[Header], sources: list[Path]) -> Iterator[str]:
    """Every AddDynamic of a function that is no UFUNCTION."""
    functions = {(made.name, each.name) for header in headers for made in header.types for each in made.members}
    for source in sources:
        for owner, name in re.findall(r"AddDynamic\(\w+, &(\w+)::(\w+)\)", source.read_text(encoding="utf-8")):
            if (owner, name) not in functions:
                yield f"{source.name}: {owner}::{name} is bound, and is no UFUNCTION"


def generated(header: Header) -> str:
    """The text of the .generated.h for the stubs."""
    lines = ["#undef CURRENT_FILE_ID", f"#define CURRENT_FILE_ID FID_{header.file.stem}"]
    for made in header.types:
        held = [
            each.name for each in made.members if re.search(r"TObjectPtr<|\*$", each.type) and each.parameters is None
        ]
        body = f"using ThisClass = {made.name};"
        if made.kind == "UCLASS":
            visits = " ".join(f"StubVisit(Visitor, {name});" for name in held)
            body += (f" using Super = {made.base}; void StubReferences(FStubVisitor& Visitor) override "
                     f"{{ Super::StubReferences(Visitor); {visits} }} private:")  # fmt: skip
        lines.append(f"#define FID_{header.file.stem}_{made.body}_GENERATED_BODY {body}")
    return "\n".join(lines) + "\n"


def main(folder: Path, public: Path = SOURCE / "Public", private: Path = SOURCE / "Private") -> int:
    """Returns the exit code."""
    headers = [read(file) for file in sorted(public.glob("*.h"))]
    broken = [*Rules(headers).check(), *check_bindings(headers, sorted(private.glob("*.cpp")))]
    print(*broken, sep="\n", end="\n" if broken else "")
    folder.mkdir(parents=True, exist_ok=True)
    for header in headers:
        (folder / f"{header.file.stem}.generated.h").write_text(generated(header), encoding="utf-8")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
