"""`animegamer-rt fetch` against a hub on loopback: what it says, what it downloads, and how it fails."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_hub import COMMIT, FakeHub, hub_of
from huggingface_hub import close_session
from project import run_command
from tiny_release import PICTURE, add_character, write_diffusers_vae, write_release

from animegamer_export.build.weight_source import from_checkpoints
from animegamer_export.fetch import light_decoder
from animegamer_export.fetch.command import add_command
from animegamer_rt.errors import AnimeGamerError, CheckpointError, ConfigError, HubError, OutputError

ANIMEGAMER, MISTRAL, VAE = "TencentARC/AnimeGamer", "mistralai/Mistral-7B-Instruct-v0.1", "zai-org/CogVideoX-2b"
ADAPTER = "MLLM-Qiqi/pytorch_model.bin"
TOKEN = "hf_onlyForThisTest"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Tiny checkpoints of both films, and files beside them that nobody needs."""
    folder, hub = write_release(tmp_path_factory.mktemp("published")), FakeHub()
    add_character(folder, "Ponyo")
    shutil.rmtree(folder / "CogVideoX-2b-sat")
    write_diffusers_vae(folder / "CogVideoX-2b" / "vae")
    (folder / "AnimeGamer" / "License.txt").write_text("the licence", encoding="utf-8")
    (folder / "Mistral-7B-Instruct-v0.1" / "pytorch_model.bin").write_bytes(b"the same weights in another form")
    for name in (ANIMEGAMER, MISTRAL, VAE):
        hub.publish(name, folder / name.partition("/")[2])
    return hub.repositories


@pytest.fixture
def hub(published: dict[str, dict[str, bytes]], tmp_path: Path) -> Iterator[FakeHub]:
    with hub_of(FakeHub({name: dict(files) for name, files in published.items()}), tmp_path) as hub:
        yield hub


def fetch(out: Path, *options: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run_command(add_command, ["--out", str(out), "--accept-licence", *options]) == 0
    return printed.getvalue()


def files_of(out: Path) -> set[str]:
    """The files under their own names: neither the record nor what an interrupted download keeps to go on with."""
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith(".fetch/")} - {"fetched.json"}


def test_sizes_space_and_licence_are_said_before_anything_is_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(ConfigError, match="--accept-licence"):
        run_command(add_command, ["--out", str(tmp_path / "checkpoints")])
    said = printed.getvalue()
    assert all(name in said for name in hub.repositories) and "free: " in said
    assert "NOT INTENDED FOR USE WITHIN THE EUROPEAN UNION" in said
    assert not hub.downloads() and not (tmp_path / "checkpoints").exists()


def test_export_finds_what_was_fetched_and_a_second_run_downloads_nothing(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    out = tmp_path / "checkpoints"
    said = fetch(out)
    assert "AnimeGamer, Ponyo" in from_checkpoints(out, "Ponyo", *PICTURE).description
    assert "AnimeGamer/VDM_Decoder-Qiqi/1/mp_rank_00_model_states.pt" in files_of(out)
    assert "Mistral-7B-Instruct-v0.1/pytorch_model.bin" not in files_of(out) and not (out / ".fetch").exists()
    record = (out / "fetched.json").read_text(encoding="utf-8")
    assert json.loads(record)["commits"] == dict.fromkeys(hub.repositories, COMMIT)
    hub.asked.clear()
    fetch(out)
    assert not hub.downloads()
    # The unpinned repository stays at the commit that was recorded.
    assert any(path.endswith(f"AnimeGamer/revision/{COMMIT}") for path, _ in hub.asked)
    assert hub.tokens == {("127.0.0.1", f"Bearer {TOKEN}")}  # not the host that large files lie on
    captured = capfd.readouterr()
    assert TOKEN not in said + record + captured.out + captured.err


def test_the_light_decoder_comes_from_its_own_repository(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, out = b"weights", tmp_path / "checkpoints"
    hub.repositories[light_decoder.REPOSITORY] = {light_decoder.PATH: content}
    monkeypatch.setattr(light_decoder, "ADDRESS", hub.address)
    monkeypatch.setattr(light_decoder, "BLOB", hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
    said = fetch(out, "--light-decoder")
    assert "madebyollin/taehv" in said and "licence MIT" in said
    assert (out / light_decoder.FILE).read_bytes() == content and "taehv/taecvx.safetensors" in files_of(out)


def test_a_broken_download_goes_on_where_it_ended(hub: FakeHub, tmp_path: Path) -> None:
    out, content = tmp_path / "checkpoints", hub.repositories[ANIMEGAMER][ADAPTER]
    hub.cut[ADAPTER] = 0
    with pytest.raises(HubError, match="run it again: finished downloads are kept"):
        fetch(out)
    assert f"AnimeGamer/{ADAPTER}" not in files_of(out)
    part = next((out / ".fetch").iterdir())
    part.write_bytes(content[:3000])  # as much as had come
    del hub.cut[ADAPTER]
    hub.asked.clear()
    fetch(out)
    assert [wanted for path, wanted in hub.downloads() if path.endswith(ADAPTER)] == ["bytes=3000-"]
    assert (out / "AnimeGamer" / ADAPTER).read_bytes() == content and not (out / ".fetch").exists()


def _wrong_checksum(hub: FakeHub, _: Path) -> None:
    content = hub.repositories[ANIMEGAMER][ADAPTER]
    hub.changed[ADAPTER] = bytes([content[0] ^ 1]) + content[1:]


def _page_for_a_file(hub: FakeHub, _: Path) -> None:
    hub.changed[ADAPTER] = b"<!DOCTYPE html><html><body>log in</body></html>"


def _full_disk(hub: FakeHub, out: Path) -> None:
    digest = hashlib.sha256(hub.repositories[ANIMEGAMER][ADAPTER]).hexdigest()
    (out / ".fetch").mkdir(parents=True)
    (out / ".fetch" / f"{digest}.part").symlink_to("/dev/full")


def _missing_file(hub: FakeHub, _: Path) -> None:
    del hub.repositories[ANIMEGAMER]["VDM_Decoder-Ponyo/1/mp_rank_00_model_states.pt"]


@pytest.mark.parametrize(
    ("broken", "kind", "said"),
    [
        (_wrong_checksum, HubError, "not the published one, and was deleted; found another checksum.*; run it again"),
        (_page_for_a_file, HubError, "a web page instead of the file; it was deleted; a proxy or a log.*HTTPS_PROXY"),
        (_full_disk, OutputError, "no space left on device; choose another folder"),
        (_missing_file, HubError, r"lacks a file; expected VDM_Decoder-Ponyo/\*/mp_rank.*--revision"),
        (lambda hub, _: setattr(hub, "pages", True), HubError, "not the hub's; found not JSON; a proxy or a log"),
        (lambda hub, _: hub.gated.add(MISTRAL), HubError, f"gated.*no token; agree to its terms on .*/{MISTRAL}"),
        (lambda hub, _: hub.refuse.update({ADAPTER: 407}), HubError, "the proxy asks for a password; found status 407"),
        (lambda hub, _: hub.repositories.pop(VAE), HubError, f"{VAE}: no such repository, or a private one"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_leaves_no_half_file(
    hub: FakeHub, tmp_path: Path, broken: Callable[[FakeHub, Path], object], kind: type[AnimeGamerError], said: str
) -> None:
    out = tmp_path / "checkpoints"
    broken(hub, out)
    with pytest.raises(kind, match=said) as caught:
        fetch(out)
    assert "\n" not in str(caught.value)
    assert f"AnimeGamer/{ADAPTER}" not in files_of(out)


def test_no_network_is_said_with_what_to_look_at(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match="no connection to http://127.0.0.1:9.*HTTPS_PROXY and HF_ENDPOINT"):
        fetch(tmp_path / "checkpoints")
    assert not (tmp_path / "checkpoints").exists()
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setitem(sys.modules, "socksio", None)
    close_session()
    with pytest.raises(HubError, match="proxy needs another library.*socksio.*give an http:// proxy"):
        fetch(tmp_path / "checkpoints")


def test_a_folder_of_another_revision_is_left_alone(hub: FakeHub, tmp_path: Path) -> None:
    out = tmp_path / "checkpoints"
    fetch(out)
    before = files_of(out)
    hub.commits[VAE] = "6" * 40
    with pytest.raises(CheckpointError, match=f"holds {VAE} at commit {COMMIT}, not at {'6' * 40}.*another --out"):
        fetch(out, f"--revision={VAE}={'6' * 40}")
    with pytest.raises(ConfigError, match="no such repository or revision.*found CogVideo=main"):
        fetch(out, "--revision=CogVideo=main")
    assert files_of(out) == before


def test_half_a_file_of_somebody_elses_is_named_and_kept(hub: FakeHub, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "AnimeGamer" / ADAPTER
    path.parent.mkdir(parents=True)
    path.write_bytes(hub.repositories[ANIMEGAMER][ADAPTER][:1000])
    with pytest.raises(CheckpointError, match=f"size or checksum differs from {ANIMEGAMER}.*move or delete it"):
        fetch(tmp_path / "checkpoints")
    assert path.stat().st_size == 1000
