"""ONNX files with the inputs and outputs of YuNet and SFace, and contents that can be worked out by hand.

The detector finds a face of 32×32 px in every cell of 32×32 px that is redder than it is green. The recognizer's vector is
the mean color of the aligned face: R, G, B, and 125 zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

_TEMPLATE = ((38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041))
"""Where the five landmarks are in an aligned face of 112×112 px."""

_INNER = [(0.5 + (v / 112 - 0.5) / 2) for point in _TEMPLATE for v in point]
"""The landmarks in units of a cell, so that an aligned face is the inner half of the cell."""


def yunet(path: Path, *, without: str = "", width: int = 1, fixed: tuple[int, int] | None = None) -> Path:
    """Write a detector.

    without: an output that it lacks.   width: numbers a score, 1 if right.   fixed: (height, width) in px of the image that
    its outputs are of, whatever image it gets.
    """
    nodes, weights, outputs = [], {}, []
    for stride in (8, 16, 32):
        pooled = f"pooled_{stride}"
        sides = {"kernel_shape": [stride, stride], "strides": [stride, stride]}
        nodes.append(_node("AveragePool", ["input"], [pooled], sides))
        # Input is B, G, R in 0 to 255. The score is the root of cls · obj.
        red = [[0.0, -1 / 128, 1 / 128]] if stride == 32 else [[0.0, 0.0, 0.0]]
        heads = {
            "cls": (red * width, [0.0] * width),
            "obj": (red * width, [0.0] * width),
            "bbox": ([[0.0] * 3] * 4, [0.5, 0.5, 0.0, 0.0]),
            "kps": ([[0.0] * 3] * 10, _INNER),
        }
        for head, (kernel, bias) in heads.items():
            name = f"{head}_{stride}"
            if name == without:
                continue
            weights[f"{name}_w"] = np.array(kernel, np.float32)[..., None, None]
            weights[f"{name}_b"] = np.array(bias, np.float32)
            weights[f"{name}_shape"] = np.array([1, -1, len(bias)], np.int64)
            cells = f"{name}_cells" if fixed else name
            nodes.append(_node("Conv", [pooled, f"{name}_w", f"{name}_b"], [f"{name}_map"], {"kernel_shape": [1, 1]}))
            nodes.append(_node("Transpose", [f"{name}_map"], [f"{name}_last"], {"perm": [0, 2, 3, 1]}))
            nodes.append(_node("Reshape", [f"{name}_last", f"{name}_shape"], [cells], {}))
            if fixed:
                end = fixed[0] * fixed[1] // stride**2
                weights |= {f"{name}_{k}": np.array([v], np.int64) for k, v in (("from", 0), ("to", end), ("axis", 1))}
                nodes.append(_node("Slice", [cells, *(f"{name}_{k}" for k in ("from", "to", "axis"))], [name], {}))
            outputs.append((name, [1, f"n_{stride}", len(bias)]))
    return _write(path, nodes, weights, [("input", [1, 3, "height", "width"])], outputs)


def sface(path: Path, *, length: int = 128) -> Path:
    """Write a recognizer.   length: of its vectors."""
    cells = 49
    matrix = np.zeros((3, cells, length), np.float32)
    for channel in range(3):
        matrix[channel, :, channel] = 1 / cells
    nodes = [
        _node("AveragePool", ["data"], ["cells"], {"kernel_shape": [16, 16], "strides": [16, 16]}),
        _node("Reshape", ["cells", "flat"], ["colors"], {}),
        _node("MatMul", ["colors", "matrix"], ["fc1"], {}),
    ]
    weights = {"flat": np.array([1, -1], np.int64), "matrix": matrix.reshape(3 * cells, length)}
    return _write(path, nodes, weights, [("data", [1, 3, 112, 112])], [("fc1", [1, length])])


def folder(path: Path) -> Path:
    """Write both files into a folder, under names like OpenCV's own."""
    path.mkdir(parents=True, exist_ok=True)
    yunet(path / "face_detection_yunet_tiny.onnx")
    sface(path / "face_recognition_sface_tiny.onnx")
    return path


def portrait(*faces: tuple[int, int, tuple[int, int, int]], width: int = 256, height: int = 192) -> np.ndarray:
    """Return a gray image, H×W×3 RGB, with faces: (column, row, color) of a cell of 32×32 px."""
    image = np.full((height, width, 3), 120, np.uint8)
    for column, row, color in faces:
        image[32 * row : 32 * row + 32, 32 * column : 32 * column + 32] = color
    return image


def objects(path: Path, words: int = 2) -> Path:
    """Write a detector of 4×4 cells of 16 px: a cell scores its red minus its green for word 0, 0 for the others."""
    matrix = np.zeros((3, 16, 16, words), np.float32)
    for cell in range(16):
        matrix[0, cell, cell, 0], matrix[1, cell, cell, 0] = 1, -1
    corners = [[c % 4 / 4, c // 4 / 4, (c % 4 + 1) / 4, (c // 4 + 1) / 4] for c in range(16)]
    nodes = [
        _node("AveragePool", ["image"], ["cells"], {"kernel_shape": [16, 16], "strides": [16, 16]}),
        _node("Reshape", ["cells", "flat"], ["colors"], {}),
        _node("MatMul", ["colors", "nothing"], ["zeros"], {}),
        _node("Add", ["zeros", "corners"], ["places"], {}),
        _node("Reshape", ["places", "of_boxes"], ["boxes"], {}),
        _node("MatMul", ["colors", "matrix"], ["reds"], {}),
        _node("Reshape", ["reds", "of_scores"], ["scores"], {}),
    ]
    weights = {
        "flat": np.array([1, -1], np.int64),
        "nothing": np.zeros((48, 64), np.float32),
        "corners": np.array(corners, np.float32).reshape(1, 64),
        "of_boxes": np.array([1, 16, 4], np.int64),
        "matrix": matrix.reshape(48, 16 * words),
        "of_scores": np.array([1, 16, words], np.int64),
    }
    outputs = [("boxes", [1, 16, 4]), ("scores", [1, 16, words])]
    return _write(path, nodes, weights, [("image", [1, 3, 64, 64])], outputs)


# Protocol buffers: a field is a tag and a varint (type 0), or a tag, a length and bytes (type 2).


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        value, low = value >> 7, value & 127
        out.append(low | (128 if value else 0))
        if not value:
            return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _node(kind: str, inputs: Iterable[str], outputs: Iterable[str], attributes: Mapping[str, Sequence[int]]) -> bytes:
    data = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in outputs)
    data += _bytes(3, f"{kind}_of_{next(iter(outputs))}") + _bytes(4, kind)
    for name, values in attributes.items():
        ints = b"".join(_number(8, value) for value in values)
        data += _bytes(5, _bytes(1, name) + ints + _number(20, 7))
    return data


def _value(name: str, shape: Iterable[int | str]) -> bytes:
    dims = b"".join(_bytes(1, _bytes(2, d) if isinstance(d, str) else _number(1, d)) for d in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, 1) + _bytes(2, dims)))


def _write(
    path: Path,
    nodes: Iterable[bytes],
    weights: Mapping[str, np.ndarray],
    inputs: Iterable[tuple[str, Sequence[int | str]]],
    outputs: Iterable[tuple[str, Sequence[int | str]]],
) -> Path:
    graph = b"".join(_bytes(1, node) for node in nodes) + _bytes(2, "tiny")
    for name, array in weights.items():
        kind = 1 if array.dtype == np.float32 else 7
        dims = b"".join(_number(1, side) for side in array.shape)
        graph += _bytes(5, dims + _number(2, kind) + _bytes(8, name) + _bytes(9, array.tobytes()))
    graph += b"".join(_bytes(11, _value(*one)) for one in inputs) + b"".join(_bytes(12, _value(*one)) for one in outputs)
    path.write_bytes(_number(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, "") + _number(2, 13)))
    return path
