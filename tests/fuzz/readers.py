"""Every reader of geoskip with small sound files for it, and what it is asked to do with damaged copies of them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geoskip.data import (
    Split,
    correspondence_folder,
    load_template,
    mesh_folder,
    prepare_template,
    published_superpixels,
    save_template,
    superpixel_set,
)
from geoskip.data.archives import Limits, read_files
from geoskip.data.cache import ARRAYS, read_entry
from geoskip.data.idx import read_idx
from geoskip.data.image_sets import FORMATS, read_image
from geoskip.data.mesh_files import ANY_MESH
from geoskip.data.template import template_bytes
from geoskip.inference.predictors import ImageClassifier, Matcher, MeshCoder, verts_of
from geoskip.inference.user_files import read_codes, read_values
from geoskip.meshes import icosphere, read_mesh
from geoskip.meshes.formats.ply import encode_ply
from geoskip.paper.findings import AnalysisRecord, read_analysis, write_analysis
from geoskip.rbf.warping import read_landmarks
from geoskip.records import RunRecord, Samples, read_record, read_samples, write_record, write_samples
from geoskip.records.files import add_to_manifest, json_sha256
from geoskip.records.reading import parse_arrays, parse_json
from geoskip.training.checkpoint import State, load_checkpoint, save_checkpoint
from geoskip.training.config import override, resolve
from geoskip.training.pretrained import load, save_pretrained
from geoskip.training.progress import read_metrics
from geoskip.training.tasks import find_task
from tests.fuzz.mutations import Random, mutate_bytes, mutate_json, mutate_tensors
from tests.meshes.mesh_files import seeds
from tests.report.made_runs import digit_samples, matched, mesh_samples, spheres
from tests.training.runs import untrained

Files = dict[str, bytes]
Mutation = Callable[[bytes, Random], bytes]
LATENT = 3


@dataclass(frozen=True)
class Reader:
    """One reader.

    name: as the counts print it.
    seeds: sound inputs: the files of a folder, by name.
    read: reads the folder; the second argument is the name of the damaged file.
    mutations: by the end of a file's name, how it is damaged; other files stay as they are.
    sign: makes checksums again after the damage, so that the checks behind them are reached.
    notices: whether checksums must find every change, so that no damaged input may be accepted.
    names: what an error message must contain, by default the name of the damaged file.
    """

    name: str
    seeds: list[Files]
    read: Callable[[Path, str], Any]
    mutations: dict[str, Mutation]
    sign: Callable[[Path], None] | None = None
    notices: bool = False
    names: Callable[[Path, str], str] = field(default=lambda folder, name: name)


def all_readers(scratch: Path) -> list[Reader]:
    """The readers; ``scratch`` is a folder for making their seeds in."""
    return [
        *_mesh_readers(),
        *_archive_readers(),
        *_plain_readers(scratch),
        *_tensor_readers(scratch),
        *_folder_readers(scratch),
        _settings_reader(scratch),
    ]


def _mesh_readers() -> list[Reader]:
    files = {suffix: [{f"mesh{suffix}": data} for data in some] for suffix, some in seeds(icosphere(0)).items()}
    json_like = {".gltf": mutate_json}
    return [
        Reader(f"mesh {suffix}", some, lambda folder, name: read_mesh(folder / name),
               {suffix: json_like.get(suffix, mutate_bytes)})
        for suffix, some in sorted(files.items())
    ]  # fmt: skip


def _archive_readers() -> list[Reader]:
    members = {f"meshes/{name}.ply": encode_ply(icosphere(0)) for name in ("a", "bü", "c")}
    packed, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with tarfile.open(fileobj=tarred, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.pax_headers = len(data), {"comment": "x", "mtime": "1.5"}
            tar.addfile(entry, io.BytesIO(data))
    plain = tarred.getvalue()
    packs: list[Files] = [{"set.zip": packed.getvalue()}, {"set.tar": plain}, {"set.tar.gz": gzip.compress(plain)}]
    packs += [{"set.tar.bz2": bz2.compress(plain)}, {"set.tar.xz": lzma.compress(plain)}]
    limits = Limits(members=1000, total_bytes=1 << 24, file_bytes=1 << 22)

    def read(folder: Path, name: str) -> None:
        for _ in read_files(folder / name, ANY_MESH, limits):
            pass

    def read_set(folder: Path, name: str) -> None:
        mesh_folder(folder / name, unit_mm=1.0, cache=folder / "cache")

    return [Reader("archive", packs, read, {"": mutate_bytes}), Reader("archive of meshes", packs, read_set,
                                                                      {"": mutate_bytes})]  # fmt: skip


def _plain_readers(scratch: Path) -> list[Reader]:
    codes = np.arange(6, dtype=np.float32).reshape(2, LATENT)
    numbers: list[Files] = [{"codes.npy": _npy(codes)}, {"codes.npy": _npy(codes.astype(">f8", order="F"))}]
    numbers += [{"codes.json": json.dumps({"latent": codes.tolist()}).encode()}, {"codes.json": b"[1, 2, 3]"}]
    values: list[Files] = [{"values.npy": _npy(np.arange(9))}, {"values.txt": b"1\n2.5 # two\n3\n"}]
    values += [{"values.json": b"[1, 2, 3]"}]
    landmarks: list[Files] = [{"marks.json": b'{"nose": 1, "ear": [0.5, 1.0, 2.0]}'}, {"marks.json": b"[0, 1, 2]"}]
    landmarks += [{"marks.csv": b"name,x,y,z\nnose,1,2,3\near,4,5,6\n"}, {"marks.csv": b"1\n2\n"}]
    record = RunRecord("MoNet", {"task": "reconstruction"}, 0, 10, 20, 1.5, 3.0, "cpu", {"torch": "2"},
                       {"mean_mm": 1.0}, {"loss": [(1.0, 2.0), (2.0, 1.0)]})  # fmt: skip
    write_record(scratch / "record.json", record)
    unsigned = json.loads((scratch / "record.json").read_text())
    del unsigned["sha256"]
    unsigned["format"] = 1
    write_analysis(scratch / "analysis.json", AnalysisRecord("depth", {"seeds": 1}, [{"depth": 1, "rank": 2.0}], 1.0))
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 4, 4) + bytes(range(32))
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 2) + b"\x01\x02"
    idx: list[Files] = [{"i-idx3": images}, {"i-idx3": gzip.compress(images)}, {"l-idx1": labels}]
    mesh = icosphere(0)
    both: dict[str, Mutation] = {".json": mutate_json, "": mutate_bytes}
    labelled: Files = {"target.ply": encode_ply(mesh), "a.ply": encode_ply(mesh), "b.ply": encode_ply(mesh)}
    numbered = " ".join(map(str, range(mesh.num_vertices))).encode()
    labelled |= {"a.npy": _npy(np.arange(mesh.num_vertices)), "b.txt": numbered}
    return [
        Reader("latent codes", numbers, lambda f, n: read_codes(f / n, LATENT), both),
        Reader("values", values, lambda f, n: read_values(f / n), both),
        Reader("landmarks", landmarks, lambda f, n: read_landmarks(f / n, mesh), both),
        Reader("run record", [{"record.json": json.dumps(unsigned).encode()}], lambda f, n: read_record(f / n), both),
        Reader("run record, signed", [{"record.json": (scratch / "record.json").read_bytes()}],
               lambda f, n: read_record(f / n), {"": mutate_bytes}, notices=True),
        Reader("analysis record", [{"a.json": (scratch / "analysis.json").read_bytes()}],
               lambda f, n: read_analysis(f / n), both),
        Reader("metrics", [{"m.jsonl": b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 1.5}\n'}],
               lambda f, n: read_metrics(f / n), {"": mutate_bytes}),
        Reader("idx", idx, lambda f, n: read_idx(f / n, 3 if "idx3" in n else 1), {"": mutate_bytes}),
        Reader("image", _images(), lambda f, n: read_image(f / n, (8, 8), color=True), {"": mutate_bytes}),
        Reader("labelled meshes", [labelled], lambda f, n: correspondence_folder(f, unit_mm=1.0),
               {".npy": mutate_bytes, ".txt": mutate_bytes}, names=lambda f, n: Path(n).stem),
    ]  # fmt: skip


def _tensor_readers(scratch: Path) -> list[Reader]:
    shapes = spheres(1)
    samples: list[Samples] = [mesh_samples(shapes, "affine", 0, 1.0), matched(shapes, 0.2, 0), digit_samples(0.5, 0, 2)]
    stored: list[Files] = []
    for item in samples:
        write_samples(scratch / "samples.safetensors", item)
        stored.append({"samples.safetensors": (scratch / "samples.safetensors").read_bytes()})
    template = prepare_template(icosphere(1), (4,), spiral_length=4)
    save_template(scratch / "t.safetensors", template)
    templates: list[Files] = [{"t.safetensors": (scratch / "t.safetensors").read_bytes()}]
    graphs = [{"x": torch.rand(5, 1), "pos": torch.rand(5, 2), "edge_index": torch.tensor([[0, 1, 2], [1, 0, 3]]),
               "y": torch.tensor([k % 2])} for k in range(4)]  # fmt: skip
    torch.save([graphs[:3], graphs[3:]], scratch / "MNISTSuperpixels.pt")
    published: list[Files] = [{"MNISTSuperpixels.pt": (scratch / "MNISTSuperpixels.pt").read_bytes()}]

    def signed(folder: Path) -> None:
        arrays, metadata = parse_arrays((folder / "t.safetensors").read_bytes())
        about = parse_json(metadata["geoskip"])
        kept = {name: about[name] for name in about if name not in ("format", "version", "sha256")}
        (folder / "t.safetensors").write_bytes(template_bytes(arrays, kept))

    mutations: dict[str, Mutation] = {"": mutate_tensors}
    return [
        Reader("samples", stored, lambda f, n: read_samples(f / n), mutations),
        Reader("samples, bytes", stored, lambda f, n: read_samples(f / n), {"": mutate_bytes}),
        Reader("template", templates, lambda f, n: load_template(f / n), mutations, signed),
        Reader("template, bytes", templates, lambda f, n: load_template(f / n), {"": mutate_bytes}),
        Reader("published superpixels", published,
               lambda f, n: published_superpixels(f / n, num_coarsenings=1, cache=f / "cache"), {"": mutate_bytes}),
    ]  # fmt: skip


def _folder_readers(scratch: Path) -> list[Reader]:
    runs, exports = [], []
    for task in ("reconstruction", "correspondence", "classification"):
        for operator in ("monet", "spiral" if task == "reconstruction" else "gcn"):
            run, _ = untrained(scratch / f"{task}-{operator}", task, _digits() if task == "classification" else None,
                               operator=operator, skip="affine")  # fmt: skip
            runs.append(_contents(run.folder))
            save_pretrained(scratch / f"{task}-{operator}-model", run.trained())
            exports.append(_contents(scratch / f"{task}-{operator}-model"))
    save_checkpoint(scratch / "checkpoints", State(7, {"w": torch.ones(3)}, {"state": {0: {"m": torch.ones(3)}}},
                                                   {"curve": [(1, 0.5)], "loss": 0.5}))  # fmt: skip
    checkpoint = _contents(scratch / "checkpoints" / "step-00000007")
    _digits(scratch / "cache")
    (entry,) = [path for path in (scratch / "cache").iterdir() if path.name.startswith("superpixels-")]
    cached = {f"{entry.name}/{name}": data for name, data in _contents(entry).items()}
    damage: dict[str, Mutation] = {".safetensors": mutate_tensors, ".json": mutate_json}
    raw: dict[str, Mutation] = {"": mutate_bytes}

    def sign(folder: Path) -> None:
        add_to_manifest(folder, [path.name for path in folder.iterdir() if path.name != "manifest.json"])

    def sign_entry(folder: Path) -> None:
        manifest = folder / entry.name / "manifest.json"
        about = json.loads(manifest.read_bytes())
        about["arrays_sha256"] = _sha256(folder / entry.name / ARRAYS)
        about.pop("sha256", None)
        manifest.write_text(json.dumps({**about, "sha256": json_sha256(about)}))

    def whole(folder: Path, name: str) -> str:
        return folder.name

    return [
        Reader("run", runs, lambda f, n: _use(f), damage, sign, names=whole),
        Reader("run, bytes", runs, lambda f, n: _use(f), raw, notices=True, names=whole),
        Reader("export", exports, lambda f, n: _use(f), damage, sign, names=whole),
        Reader("export, bytes", exports, lambda f, n: _use(f), raw, notices=True, names=whole),
        Reader("checkpoint, bytes", [checkpoint], lambda f, n: load_checkpoint(f), raw, notices=True, names=whole),
        Reader("cache entry", [cached], lambda f, n: _digits(f), {".safetensors": mutate_tensors},
               sign_entry, names=lambda f, n: ""),
        Reader("cache entry, bytes", [cached], lambda f, n: read_entry(f / entry.name), raw, notices=True,
               names=lambda f, n: ""),
    ]  # fmt: skip


def _settings_reader(scratch: Path) -> Reader:
    """Settings of the command line: one per line, as ``--set`` takes them."""
    from PIL import Image

    pictures = scratch / "pictures"
    for name in ("a/0", "a/1", "b/0", "b/1"):
        (pictures / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (28, 28), np.uint8)).save(pictures / f"{name}.png")
    meshes = scratch / "meshes"
    meshes.mkdir()
    for name in ("target", "a", "b"):
        (meshes / f"{name}.ply").write_bytes(encode_ply(icosphere(0)))
        (meshes / f"{name}.txt").write_text(" ".join(map(str, range(12))))
    places = {"reconstruction": meshes, "correspondence": meshes, "classification": pictures}

    def read(folder: Path, name: str) -> None:
        entries = json.loads((folder / name).read_bytes())
        config = resolve(entries["task"], data=str(places[entries["task"]]))
        config = override(config, entries["settings"])
        task = find_task(config.task)
        task.check_config(config)
        if config.data == str(places[config.task]):
            task.load_data(config)

    def mutate(data: bytes, random: Random) -> bytes:
        """Other names, and values as a shell would pass them."""
        entries = json.loads(data)
        keys = ["optim.lr", "optim.epochs", "optim", "model.latent", "model.channels", "model.dropout", "model",
                "options.bias", "options.degree", "options", "seed", "kernel_size", "operator", "skip", "device",
                "data_options.recipe", "data_options.size", "data_options.unit_mm", "data_options.test",
                "data_options.template", "data_options.color", "data_options.workers", "data_options.cache",
                "data_options", "train_items", "precision", "pseudo", "tf32", "x", "optim.", ".x", ""]  # fmt: skip
        seed = json.dumps({"v": 1}).encode()
        for _ in range(random.integers(1, 3)):
            value = mutate_json(seed, random).decode("utf-8", "replace")
            text = value[5:-1] if value.startswith('{"v":') else value
            entries["settings"].append(f"{random.choice(keys)}={text}".replace("\0", ""))
        return json.dumps(entries).encode()

    tasks: list[Files] = [{"s.json": json.dumps({"task": task, "settings": [] if task == "classification" else
                           ["data_options.unit_mm=1"]}).encode()} for task in places]  # fmt: skip
    return Reader("settings", tasks, read, {"": mutate}, names=lambda f, n: "")


def _use(folder: Path) -> None:
    """What ``geoskip apply`` does with a model."""
    trained = load(folder)
    if trained.config.task == "reconstruction":
        coder = MeshCoder(trained)
        coder.meshes(coder.reconstruct(verts_of([coder.template])))
    elif trained.config.task == "correspondence":
        Matcher(trained).match(icosphere(1))
    else:
        images = np.random.default_rng(0).integers(0, 255, (1, 12, 12), dtype=np.uint8)
        try:
            ImageClassifier(trained).classify(images)
        except ValueError as error:
            # The model is sound, and says that it was trained on other images, or on none.
            if not str(error).startswith(("images", "classifying images needs")):
                raise


def _digits(cache: Path | None = None) -> Any:
    images = np.random.default_rng(0).integers(0, 255, (6, 12, 12), dtype=np.uint8)
    labels = np.arange(6) % 2
    split = Split.leading(6, 4)
    return superpixel_set(images, labels, ["a", "b"], split, nodes=16, degree=5.0, workers=1, cache=cache)


def _images() -> list[Files]:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (9, 7, 3), dtype=np.uint8)
    found: list[Files] = []
    for kind in FORMATS:
        for mode in ("RGB", "L"):
            file = io.BytesIO()
            Image.fromarray(pixels).convert(mode).save(file, kind)
            found.append({f"image.{kind.lower()}": file.getvalue()})
    return found


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _contents(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
