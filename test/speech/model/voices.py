"""Makes voices for tests, in the layouts of piper and kokoro as sherpa-onnx loads them: python3 voices.py OUT

Nothing is trained: each phoneme becomes a tone of its own pitch, which the speaker moves, for as long as the speed says.
The programs around the model (phonemes of espeak-ng, tensors, speakers, speed) are thereby those of real voices.
Phonemes need the folder espeak-ng-data, which published voices bring; the tests take it from a package.
"""
import struct
import sys
from pathlib import Path

from onnx import TensorProto, checker, helper, save

SYMBOLS = list("_^$ !'(),-.:;?abcdefhijklmnopqrstuvwxyzæçðøħŋœɐɑɒɓɔɕɖɗɘəɚɛɜɞɟɠɡɢɣɤɥɦɧɨɪɫɬɭɮɯɰɱɲɳɴɵɶɸɹɺɻɽɾʀʁʂʃʄʈʉʊʋʌʍʎʏʐʑʒʔʕʘʙʛʜʝʟʡʢˈˌːˑθ")
RATE = 16_000
#: Samples of a phoneme at normal speed.
LENGTH = 800.0
STYLE = (64, 1, 2)
SPEAKERS = 2


def constant(name, kind, values, shape):
    return helper.make_tensor(name, kind, shape, values)


def tones(tokens, length, shift, out):
    """Nodes that turn tokens [1, L], samples of each [1], and a shift of pitch in Hz [1] into samples [L * length]."""
    return [
        helper.make_node("Cast", [length], ["samples"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["samples", "zero_axis"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["steps"]),
        helper.make_node("Cast", ["steps"], ["time"], to=TensorProto.FLOAT),
        helper.make_node("Cast", [tokens], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["ids", "column"], ["rows"]),
        helper.make_node("Mul", ["rows", "per_token"], ["higher"]),
        helper.make_node("Add", ["higher", shift], ["pitch"]),
        helper.make_node("Mul", ["pitch", "time"], ["turns"]),
        helper.make_node("Mul", ["turns", "angle"], ["phase"]),
        helper.make_node("Sin", ["phase"], ["wave"]),
        helper.make_node("Mul", ["wave", "volume"], ["sound"]),
        helper.make_node("Reshape", ["sound", "shape"], [out]),
    ]


def constants(shape):
    return [
        constant("zero", TensorProto.INT64, [0], []),
        constant("one", TensorProto.INT64, [1], []),
        constant("zero_axis", TensorProto.INT64, [0], [1]),
        constant("column", TensorProto.INT64, [-1, 1], [2]),
        constant("per_token", TensorProto.FLOAT, [10.0], [1]),
        constant("angle", TensorProto.FLOAT, [6.283185307 / RATE], [1]),
        constant("volume", TensorProto.FLOAT, [0.3], [1]),
        constant("length", TensorProto.FLOAT, [LENGTH], [1]),
        constant("low", TensorProto.FLOAT, [200.0], [1]),
        constant("shape", TensorProto.INT64, shape, [len(shape)]),
    ]


def write(folder, file, nodes, inputs, output, extra, shape, about):
    graph = helper.make_graph(nodes, "tones", inputs, [output], constants(shape) + extra)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    for key, value in about.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, str(value)
    checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    save(model, folder / file)
    (folder / "tokens.txt").write_text("".join(f"{symbol} {index}\n" for index, symbol in enumerate(SYMBOLS)))


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def piper(folder, file, language, voice):
    nodes = [
        helper.make_node("Gather", ["scales", "one_axis"], ["slowness"]),
        helper.make_node("Mul", ["length", "slowness"], ["long"]),
        helper.make_node("Cast", ["sid"], ["speaker"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["speaker", "apart"], ["aside"]),
        helper.make_node("Add", ["aside", "low"], ["shift"]),
        *tones("input", "long", "shift", "output"),
    ]
    extra = [constant("one_axis", TensorProto.INT64, [1], [1]), constant("apart", TensorProto.FLOAT, [300.0], [1])]
    inputs = [
        value("input", TensorProto.INT64, [1, "L"]),
        value("input_lengths", TensorProto.INT64, [1]),
        value("scales", TensorProto.FLOAT, [3]),
        value("sid", TensorProto.INT64, [1]),
    ]
    about = dict(model_type="vits", comment="piper", language=language, voice=voice, has_espeak=1, n_speakers=SPEAKERS, sample_rate=RATE)
    write(folder, file, nodes, inputs, value("output", TensorProto.FLOAT, [1, 1, 1, "T"]), extra, [1, 1, 1, -1], about)


def kokoro(folder):
    nodes = [
        helper.make_node("Div", ["length", "speed"], ["long"]),
        helper.make_node("Gather", ["style", "zero_axis"], ["first"], axis=1),
        helper.make_node("Reshape", ["first", "zero_shape"], ["aside"]),
        helper.make_node("Add", ["aside", "low"], ["shift"]),
        *tones("tokens", "long", "shift", "audio"),
    ]
    inputs = [
        value("tokens", TensorProto.INT64, [1, "L"]),
        value("style", TensorProto.FLOAT, [1, STYLE[2]]),
        value("speed", TensorProto.FLOAT, [1]),
    ]
    extra = [constant("zero_shape", TensorProto.INT64, [1], [1])]
    about = dict(model_type="kokoro", voice="en-us", has_espeak=1, n_speakers=SPEAKERS, sample_rate=RATE, style_dim=",".join(map(str, STYLE)))
    write(folder, "model.onnx", nodes, inputs, value("audio", TensorProto.FLOAT, ["T"]), extra, [-1], about)
    styles = [300.0 * speaker for speaker in range(SPEAKERS) for _ in range(STYLE[0] * STYLE[2])]
    (folder / "voices.bin").write_bytes(struct.pack(f"<{len(styles)}f", *styles))


out = Path(sys.argv[1])
piper(out / "vits-piper-en_US-tones-low", "en_US-tones-low.onnx", "English", "en-us")
piper(out / "vits-piper-de_DE-tones-low", "de_DE-tones-low.onnx", "German", "de")
kokoro(out / "kokoro-en-tones")
