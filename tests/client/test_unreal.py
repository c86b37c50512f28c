"""The Unreal plugin without Unreal: compiled against stubs of the API that it uses, and played in a loop of stubs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from client.conformance.fake_server import FakeServer
from client.conformance.fake_turns import PNG
from live_server import LiveServer

import animegamer_rt
import fakes
from client import driver_stories as stories

PLUGIN = Path(__file__).parents[2] / "client" / "unreal"
MSVC_FLAGS = (
    "--driver-mode=cl",
    "--target=x86_64-linux-gnu",
    "/Zs",
    "/W4",
    "/WX",
    "/GR-",
    "-Wshadow",
    "-Xclang",
    "-std=c++20",
)
"""The nearest that Clang has to those of Unreal's build tool for MSVC: without that compiler's own headers."""

BROKEN_HEADERS = {
    'UPROPERTY(BlueprintReadOnly, Category = "A") uint32 Count;': "no property of Blueprints has the type uint32",
    "UPROPERTY() size_t Count;": "no property of Blueprints has the type size_t",
    "UPROPERTY(BlueprintReadOnly) int32 Count;": "needs a Category",
    'UPROPERTY(BlueprintReadOnly, Category = "A") std::string Text;': "has the type std::string",
    'private: UPROPERTY(BlueprintReadWrite, Category = "A") int32 Count;': "what Blueprints see is not private",
    'UPROPERTY(BlueprintReadOnly, Category = "A") TArray<TArray<int32>> Rows;': "has the type TArray<TArray<int32>>",
    "UPROPERTY() int32 Count; UFUNCTION() void Set(int32 Count);": "its parameter Count hides a property",
    "UPROPERTY() int32 Count; UFUNCTION() void count();": "names are unlike",
    "UFUNCTION(BlueprintCallable) void Go();": "needs a Category",
    "UFUNCTION() void Go(const std::vector<int>& Numbers);": "which no UFUNCTION takes",
    "UPROPERTY(BlueprintAssignable) FOnOther OnOther;": "a dynamic multicast delegate is BlueprintAssignable",
    "UPROPERTY() FOnGone OnGone;": "a dynamic multicast delegate is BlueprintAssignable",
    "TObjectPtr<UTexture2D> Picture;": "an object without UPROPERTY is collected",
    "UPROPERTY(BlueprintAssignable) FOnDone OnDone;": "all are of one type",
    "#if MY_GAME\nUPROPERTY() int32 Count;\n#endif": "must not be inside #if",
}
"""What stands in a class, and what the header tool says of it."""


def run(*command: object) -> str:
    """Run a command that must succeed; returns its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("ANIMEGAMER_CLIENT_BUILDS") or tmp_path_factory.mktemp("builds")) / "unreal"
    (folder / "Plugins").mkdir(parents=True, exist_ok=True)
    run(sys.executable, PLUGIN / "pack.py", folder / "Plugins")
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_COMPILER=clang++")
    run("cmake", "-S", PLUGIN / "tests", "-B", folder, f"-DPLUGIN={folder / 'Plugins' / 'AnimeGamer'}", *options)
    run("cmake", "--build", folder, "--parallel", 2)
    return folder


def test_games_are_played_and_what_is_announced_is_drawn(build: Path, tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.2", turns_per_minute=0) as server:
        said = run(build / "driver", f"tcp://127.0.0.1:{server.ready().port}")
    parts = ["two turns", "say instead", "list, branch, replay, rewind", "next level", "second play"]
    assert said.splitlines() == parts


def test_each_of_ten_nodes_hears_its_own_clip(build: Path, tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.2", turns_per_minute=0) as server:
        said = run(build / "driver", f"tcp://127.0.0.1:{server.ready().port}", "chain")
    assert said.splitlines() == ["a chain of 10, 5 objects", "looped, paused, faded"], "and no ended node is kept"


def test_a_game_starts_from_a_picture_and_shows_what_is_ready(build: Path, tmp_path: Path) -> None:
    (tmp_path / "start.png").write_bytes(PNG)
    server = FakeServer(minor=2)
    server.offers, server.refusals = ["Mia explodes."], {"turn": ["not_understood"]}
    try:
        assert run(build / "driver", server.address, tmp_path / "start.png") == "from a picture\n"
    finally:
        server.close()
    assert server.kinds().count("close") == 1, "the game that was asked for before the picture is closed"


def test_the_scenarios_of_the_conformance_suite_pass(build: Path) -> None:
    stories.check_conformance([str(build / "conform")])


def test_settings_that_cannot_be_meant_are_refused_everywhere(build: Path) -> None:
    assert run(build / "driver", "nowhere", "refused") == "refused\n"


def test_the_packed_plugin_holds_the_native_client(tmp_path: Path) -> None:
    module = tmp_path / "AnimeGamer" / "Source" / "AnimeGamerNative"
    run(sys.executable, PLUGIN / "pack.py", tmp_path)
    (module / "Private" / "of_an_older_version.cpp").touch()
    run(sys.executable, PLUGIN / "pack.py", tmp_path)
    assert not (module / "Private" / "of_an_older_version.cpp").exists()
    assert (module / "Public" / "animegamer.h").is_file() and (module / "Private" / "client.cpp").is_file()
    plugin = (tmp_path / "AnimeGamer" / "AnimeGamer.uplugin").read_text(encoding="utf-8")
    assert f'"VersionName": "{animegamer_rt.__version__}"' in plugin
    assert all(
        (tmp_path / "AnimeGamer" / name).is_file()
        for name in ("Resources/Icon128.png", "Config/FilterPlugin.ini", "LICENSE")
    )
    (tmp_path / "mine" / "AnimeGamer").mkdir(parents=True)
    done = subprocess.run([sys.executable, PLUGIN / "pack.py", tmp_path / "mine"], capture_output=True, text=True)
    assert done.returncode == 1 and "is not this plugin" in done.stderr
    nowhere = tmp_path / "no-project" / "Plugins"
    done = subprocess.run([sys.executable, PLUGIN / "pack.py", nowhere], capture_output=True, text=True)
    assert done.returncode == 1 and f"there is no folder {nowhere.parent}" in done.stderr
    assert not nowhere.parent.exists()


def header_tool() -> ModuleType:
    """The program that checks headers; its folder is no package."""
    spec = importlib.util.spec_from_file_location("header_tool", PLUGIN / "tests" / "header_tool.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["header_tool"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_headers_that_unreals_header_tool_refuses_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = header_tool()
    start = (
        '#include "CoreMinimal.h"\n#include "Game.generated.h"\n'
        "DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FOnGone, int32, Turn);\n"
        "DECLARE_DYNAMIC_MULTICAST_DELEGATE(FOnDone);\n"
    )
    factory = (
        'UFUNCTION(BlueprintCallable, Category = "A", meta = (BlueprintInternalUseOnly = "true")) static UNode* Play();'
    )
    body = f"GENERATED_BODY()\npublic:\n{factory}\n"
    one = "UPROPERTY(BlueprintAssignable) FOnGone OnFirst;\n"

    def said(text: str) -> str:
        (tmp_path / "Game.h").write_text(text, encoding="utf-8")
        tool.main(tmp_path / "out", tmp_path, tmp_path)
        return capsys.readouterr().out

    def node(members: str) -> str:
        return f"{start}UCLASS()\nclass UNode : public UCancellableAsyncAction\n{{\n{members}\n}};\n"

    assert said(node(body + one)) == ""
    for members, rule in BROKEN_HEADERS.items():
        assert rule in said(node(body + one + members)), members
    for text, rule in {
        node(factory + one): "GENERATED_BODY() is missing",
        node("GENERATED_BODY()\npublic:\n" + one): "its factory needs",
        node(body + one).replace(
            '"Game.generated.h"', '"Game.generated.h"\n#include "Other.h"'
        ): "must be the last #include",
        node(body + one).replace("OneParam(", "TwoParams("): "the macro takes another number",
        node(body + one).replace(
            "OneParam(FOnGone, int32", "OneParam(FOnGone, uint16"
        ): "no Blueprint has a pin of type uint16",
        start + "DECLARE_DYNAMIC_MULTICAST_DELEGATE_TenParams(FOnTen" + ", int32, A" * 10 + ");": "another number",
        start + "UENUM(BlueprintType)\nenum class EKind : int32 { A };": "uint8",
        start + "USTRUCT()\nstruct Bare\n{\nGENERATED_BODY()\n};\n": "begins with F",
    }.items():
        assert rule in said(text), text


def test_the_modules_compile_with_unreals_warnings(build: Path) -> None:
    """The build did so for Clang, each module as one file. Here are MSVC's flags, the game's module file by file."""
    source = build / "Plugins" / "AnimeGamer" / "Source"
    for module in ("AnimeGamerNative", "AnimeGamer"):
        rules = (source / module / f"{module}.Build.cs").read_text(encoding="utf-8")
        throws, alone = ("bEnableExceptions = true" in rules, "bUseUnity = false" in rules)
        assert throws == alone == (module == "AnimeGamerNative"), "as tests/CMakeLists.txt has it"
        files = sorted((source / module / "Private").rglob("*.cpp"))
        if module == "AnimeGamerNative":
            whole = build / "whole.cpp"
            whole.write_text("".join(f'#include "{path}"\n' for path in files), encoding="utf-8")
            files = [whole]
        folders = (PLUGIN / "tests" / "stubs", build / "headers", source / "AnimeGamerNative" / "Public")
        includes = [f"-I{folder}" for folder in (*folders, source / module / "Public", source / module / "Private")]
        run(
            "clang++", *MSVC_FLAGS, *(["/EHsc"] if throws else []), *includes, "--", *files
        )  # a path may look like one of its options


def test_the_readmes_steps_name_what_is_there() -> None:
    """First picture in ten steps or fewer; the node, its pins and the files are those of the plugin."""
    readme = (PLUGIN / "README.md").read_text(encoding="utf-8")
    steps = re.findall(
        r"^\d+\. (.*?)(?=^\d+\. |^$)", readme.split("## From nothing to a turn")[1], re.DOTALL | re.MULTILINE
    )
    text = " ".join(" ".join(steps).split())
    assert 1 < len(steps) <= 10
    header = (PLUGIN / "Source" / "AnimeGamer" / "Public" / "AnimeGamerPlayTurn.h").read_text(encoding="utf-8")
    assert f'DisplayName = "{re.findall("[*][*](Play Turn)[*][*]", text)[0]}"' in header
    pins = re.findall(r"FAnimeGamerOnPlayTurn, (.*?)\);", header)[0]
    for event, pin in re.findall(r"\*(On \w+)\* to [^,;.]*? with \*(\w+)\*", text):
        assert f"FAnimeGamerOnPlayTurn {event.replace(' ', '')};" in header
        assert re.search(rf"\b{pin}\b", pins)
    assert len(re.findall(r"with \*", text)) == 2, "the picture and the error"
    for path in re.findall(r"client/unreal/[\w.]+", text):
        assert (PLUGIN.parents[1] / path).is_file()
    descriptor = json.loads((PLUGIN / "AnimeGamer.uplugin").read_text(encoding="utf-8"))
    allowed = {platform for module in descriptor["Modules"] for platform in module["PlatformAllowList"]}
    assert allowed == set(descriptor["SupportedTargetPlatforms"]) and "5.4 to 5.7" in readme


@pytest.mark.skipif(
    shutil.which("mcs") is None, reason="no C# compiler; on Debian: apt-get install mono-mcs mono-runtime"
)
def test_the_build_rules_compile(tmp_path: Path) -> None:
    tool = PLUGIN / "tests" / "stubs" / "UnrealBuildTool.cs"
    run("mcs", "-target:library", f"-out:{tmp_path / 'rules.dll'}", tool, *(PLUGIN / "Source").glob("*/*.Build.cs"))
