"""
Trains the recognizer beside this file on flite's voices, and writes it in the form that sherpa-onnx loads.

    python3 train.py OUT [--steps 3000] [--seed 1]

Needs Debian's flite, python3-torch, python3-numpy and python3-onnx; no data: what is heard is spoken on the way, and
every round hears new sentences. OUT gets model.int8.onnx and tokens.txt, and checkpoint.pt, which a later run goes on from.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile
import wave

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from sentences import VOCABULARY, sentence

RATE = 16_000
VOICES = ('rms', 'slt', 'awb', 'kal16')
# The woman's voice is the only one of its kind, and needs more of them.
OFTEN = (*VOICES, 'slt')
# Never trained on: the first 200 of this seed, and what the tests say.
HELD_OUT_SEED = 20_000_000
HELD_OUT = 200
TESTED = (
    'the weather was warm this morning, and many people went to the park to enjoy the sun',
    'the children played with a ball while their parents talked about the news of the day',
    'in the afternoon the family had dinner in a small restaurant near the river',
    'everyone was happy with the food and the service',
    'they decided to come back again next week',
    'the old house stood near the river',
)

# Words whole: letters take ten times the training until their spelling is right.
TOKENS = ['<blk>', *('\u2581' + word for word in VOCABULARY)]
NUMBERS = {token: number for number, token in enumerate(TOKENS)}
BINS = 80
# Clips, of about 200 kB each.
REMEMBERED = 5000
CHANNELS = 192
DILATIONS = (1, 2, 4, 1, 2, 4, 1)


# --- what sherpa-onnx hears: the log Mel filter bank of kaldi-native-fbank with sherpa-onnx's options (features.h) ---

FRAME, SHIFT, FFT = 400, 160, 512
WINDOW = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / (FRAME - 1))) ** 0.85  # povey


def mel_bank() -> np.ndarray:
    """Triangles on the Mel scale from 20 Hz to 400 Hz below Nyquist, [FFT/2 + 1, BINS]."""

    def mel(hertz):
        return 1127 * np.log(1 + hertz / 700)

    low, high = mel(20.0), mel(RATE / 2 - 400.0)
    step = (high - low) / (BINS + 1)
    at = mel(np.arange(FFT // 2 + 1) * RATE / FFT)[:, None]
    left = low + np.arange(BINS)[None, :] * step
    return np.maximum(0, np.minimum((at - left) / step, (left + 2 * step - at) / step)).astype(np.float32)


BANK = mel_bank()


def features(samples: np.ndarray) -> np.ndarray:
    """Of samples in [-1, 1] at 16 kHz: [frames, BINS], a frame each 10 ms, the ends mirrored (snip_edges=false)."""
    count = (len(samples) + SHIFT // 2) // SHIFT
    before = FRAME // 2 - SHIFT // 2
    after = max(0, (count - 1) * SHIFT - before + FRAME - len(samples))
    padded = np.pad(samples.astype(np.float32), (before, after), mode='symmetric')
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::SHIFT][:count]
    frames = frames - frames.mean(axis=1, keepdims=True)
    earlier = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    frames = (frames - 0.97 * earlier) * WINDOW
    power = np.abs(np.fft.rfft(frames, FFT)) ** 2
    return np.log(np.maximum(power.astype(np.float32) @ BANK, np.finfo(np.float32).eps))


# --- speech ---


def speak(text: str, voice: str, stretch: float, folder: str) -> np.ndarray:
    """Samples in [-1, 1]."""
    path = os.path.join(folder, 'speech.wav')
    command = ['flite', '-voice', voice, '--setf', f'duration_stretch={stretch:.3f}', '-t', text, '-o', path]
    subprocess.run(command, check=True)
    with wave.open(path) as file:
        assert file.getframerate() == RATE
        return np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16) / 32768


def said_aloud(pick: random.Random, unheard: set[str], longest: int) -> str:
    """One to `longest` sentences with points between them."""
    said = []
    count = pick.randint(1, longest)
    while len(said) < count:
        one = sentence(pick)
        if one not in unheard:
            said.append(one)
    return '. '.join(said)


def disturb(samples: np.ndarray, pick: random.Random, noise: np.random.Generator) -> np.ndarray:
    """Other speed, pitch and loudness, silence at the ends, and mostly some noise: none is a machine's silence, of zeros."""
    at = np.arange(0, len(samples) - 1, pick.uniform(0.94, 1.06))
    samples = np.interp(at, np.arange(len(samples)), samples)
    samples = np.pad(samples, (int(RATE * pick.uniform(0, 0.4)), int(RATE * pick.uniform(0, 0.4))))
    samples = samples * 10 ** pick.uniform(-0.8, 0.3)
    if pick.random() < 0.6:
        level = 10 ** pick.uniform(-4.5, -2.2)
        samples = samples + level * noise.standard_normal(len(samples))
    return np.clip(samples, -1, 1)


def labels(text: str) -> list[int]:
    return [NUMBERS['\u2581' + word] for word in text.replace('.', ' ').replace(',', ' ').split()]


# --- the network: convolutions only, so that memory grows with the length of the audio and no faster ---


class Block(nn.Module):
    def __init__(self, dilation: int):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, CHANNELS, 5, dilation=dilation, padding=2 * dilation, bias=False)
        self.norm = nn.BatchNorm1d(CHANNELS)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(BINS, 128, 5, stride=2, padding=2, bias=False)
        self.first_norm = nn.BatchNorm1d(128)
        self.second = nn.Conv1d(128, CHANNELS, 5, stride=2, padding=2, bias=False)
        self.second_norm = nn.BatchNorm1d(CHANNELS)
        self.blocks = nn.ModuleList(Block(dilation) for dilation in DILATIONS)
        self.drop = nn.Dropout(0.05)
        self.last = nn.Conv1d(CHANNELS, len(TOKENS), 1)

    def forward(self, x):
        """[N, frames, BINS] to log probabilities [N, frames / 4, tokens]."""
        x = torch.relu(self.first_norm(self.first((x.transpose(1, 2) + 8) / 4)))
        x = torch.relu(self.second_norm(self.second(x)))
        for block in self.blocks:
            x = self.drop(block(x))
        return self.last(x).transpose(1, 2).log_softmax(-1)


def heard(log_probs: np.ndarray) -> str:
    best = log_probs.argmax(-1)
    kept = [token for at, token in enumerate(best) if token != 0 and (at == 0 or token != best[at - 1])]
    return ''.join(TOKENS[token] for token in kept).replace('\u2581', ' ').strip()


def word_errors(said: str, got: str) -> tuple[int, int]:
    """Edits, and words said."""
    one, other = said.replace('.', ' ').replace(',', ' ').split(), got.split()
    row = list(range(len(other) + 1))
    for i, word in enumerate(one):
        following = [i + 1]
        for j, candidate in enumerate(other):
            following.append(min(row[j + 1] + 1, following[j] + 1, row[j] + (word != candidate)))
        row = following
    return row[-1], len(one)


def evaluate(model: Recognizer, sentences: list[str], folder: str) -> str:
    model.eval()
    edits = dict.fromkeys(VOICES, 0)
    words = dict.fromkeys(VOICES, 0)
    sample = ''
    with torch.no_grad():
        for at, text in enumerate(sentences):
            voice = VOICES[at % len(VOICES)]
            given = torch.from_numpy(features(speak(text, voice, 1.0, folder)))[None]
            sample = heard(model(given)[0].numpy())
            errors, count = word_errors(text, sample)
            edits[voice] += errors
            words[voice] += count
    model.train()
    by_voice = ' '.join(f'{voice} {100 * edits[voice] / words[voice]:.1f}' for voice in VOICES)
    return f'word errors {100 * sum(edits.values()) / sum(words.values()):.2f} % ({by_voice}); last: {sample}'


# --- the file: convolutions with the norms folded in, weights as 8-bit integers with a scale for each output ---


def export(model: Recognizer, path: str) -> None:
    nodes, constants = [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(value, name))
        return name

    def convolution(name, conv, norm, given, relu=True, dilation=1, stride=1):
        weight = conv.weight.detach().numpy().astype(np.float64)
        bias = np.zeros(weight.shape[0]) if conv.bias is None else conv.bias.detach().numpy().astype(np.float64)
        if norm is not None:
            scale = norm.weight.detach().numpy() / np.sqrt(norm.running_var.numpy() + norm.eps)
            bias = norm.bias.detach().numpy() + (bias - norm.running_mean.numpy()) * scale
            weight = weight * scale[:, None, None]
        step = np.maximum(np.abs(weight).max(axis=(1, 2), keepdims=True), 1e-9) / 127
        constant(f'{name}.weight', np.round(weight / step).astype(np.int8))
        constant(f'{name}.scale', step.astype(np.float32))
        constant(f'{name}.bias', bias.astype(np.float32))
        nodes.append(helper.make_node('Cast', [f'{name}.weight'], [f'{name}.float'], to=TensorProto.FLOAT))
        nodes.append(helper.make_node('Mul', [f'{name}.float', f'{name}.scale'], [f'{name}.used']))
        padding = dilation * (weight.shape[2] // 2)
        nodes.append(
            helper.make_node(
                'Conv',
                [given, f'{name}.used', f'{name}.bias'],
                [f'{name}.sum'],
                dilations=[dilation],
                strides=[stride],
                pads=[padding, padding],
                kernel_shape=[weight.shape[2]],
            )
        )
        if not relu:
            return f'{name}.sum'
        nodes.append(helper.make_node('Relu', [f'{name}.sum'], [f'{name}.out']))
        return f'{name}.out'

    nodes.append(helper.make_node('Add', ['x', constant('eight', np.float32(8))], ['x.moved']))
    nodes.append(helper.make_node('Div', ['x.moved', constant('four', np.float32(4))], ['x.scaled']))
    nodes.append(helper.make_node('Transpose', ['x.scaled'], ['x.turned'], perm=[0, 2, 1]))
    at = convolution('first', model.first, model.first_norm, 'x.turned', stride=2)
    at = convolution('second', model.second, model.second_norm, at, stride=2)
    for number, (block, dilation) in enumerate(zip(model.blocks, DILATIONS)):
        change = convolution(f'block{number}', block.conv, block.norm, at, dilation=dilation)
        nodes.append(helper.make_node('Add', [at, change], [f'block{number}.kept']))
        at = f'block{number}.kept'
    at = convolution('last', model.last, None, at, relu=False)
    nodes.append(helper.make_node('Transpose', [at], ['turned'], perm=[0, 2, 1]))
    nodes.append(helper.make_node('LogSoftmax', ['turned'], ['log_probs'], axis=2))
    # each stride leaves (n + 1) / 2 of n frames
    constant('three', np.int64(3))
    constant('quarter', np.int64(4))
    nodes.append(helper.make_node('Add', ['x_lens', 'three'], ['x_lens.more']))
    nodes.append(helper.make_node('Div', ['x_lens.more', 'quarter'], ['log_probs_len']))
    graph = helper.make_graph(
        nodes,
        'machine-voices',
        [
            helper.make_tensor_value_info('x', TensorProto.FLOAT, ['N', 'T', BINS]),
            helper.make_tensor_value_info('x_lens', TensorProto.INT64, ['N']),
        ],
        [
            helper.make_tensor_value_info('log_probs', TensorProto.FLOAT, ['N', 'U', len(TOKENS)]),
            helper.make_tensor_value_info('log_probs_len', TensorProto.INT64, ['N']),
        ],
        constants,
    )
    written = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], producer_name='train.py')
    written.ir_version = 8
    # sherpa-onnx asks for it: the kind whose inputs and outputs these are
    helper.set_model_props(written, {'model_type': 'zipformer2_ctc', 'comment': 'convolutions; machine voices only'})
    onnx.checker.check_model(written)
    onnx.save(written, path)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument('out')
    arguments.add_argument('--steps', type=int, default=3000)
    arguments.add_argument('--rate', type=float, default=2e-3)
    arguments.add_argument('--warm', type=float, default=0.1)
    arguments.add_argument('--batch', type=int, default=16)
    arguments.add_argument('--longest', type=int, default=2)
    arguments.add_argument('--seed', type=int, default=1)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    os.makedirs(options.out, exist_ok=True)
    checkpoint = os.path.join(options.out, 'checkpoint.pt')

    judge = random.Random(HELD_OUT_SEED)
    held_out = [sentence(judge) for _ in range(HELD_OUT)]
    unheard = {*held_out, *TESTED}
    pick = random.Random(options.seed)
    noise = np.random.default_rng(options.seed)
    model = Recognizer()
    print(f'{sum(p.numel() for p in model.parameters())} parameters, {len(TOKENS)} tokens', flush=True)
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        if len(state['last.weight']) != len(TOKENS):
            state = {name: value for name, value in state.items() if not name.startswith('last')}
        model.load_state_dict(state, strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, total_steps=options.steps, pct_start=options.warm)
    loss_of = nn.CTCLoss(zero_infinity=True)

    def save() -> None:
        torch.save(model.state_dict(), checkpoint)
        model.eval()
        export(model, os.path.join(options.out, 'model.int8.onnx'))
        model.train()

    with open(os.path.join(options.out, 'tokens.txt'), 'w', encoding='utf8') as file:
        file.writelines(f'{token} {number}\n' for number, token in enumerate(TOKENS))
    with tempfile.TemporaryDirectory() as folder:
        spoken, batches, total, step = [], [], 0.0, 0
        while step < options.steps:
            if not batches:
                # flite takes longer than the network: of five clips one is new, the others are heard again, disturbed anew
                for _ in range(options.batch * 2):
                    text = said_aloud(pick, unheard, options.longest)
                    samples = speak(text, pick.choice(OFTEN), pick.uniform(0.9, 1.2), folder)
                    spoken.append((samples.astype(np.float32), labels(text)))
                spoken = spoken[-REMEMBERED:]
                chosen = spoken[-options.batch * 2 :] + pick.choices(spoken, k=options.batch * 8)
                clips = [(disturb(samples, pick, noise), tokens) for samples, tokens in chosen]
                # of like length together: all of a batch are made as long as the longest, with silence
                clips.sort(key=lambda clip: len(clip[0]))
                batches = [clips[at : at + options.batch] for at in range(0, len(clips), options.batch)]
                pick.shuffle(batches)
            batch = batches.pop()
            longest = max(len(samples) for samples, _ in batch)
            given = torch.from_numpy(
                np.stack([features(np.pad(samples, (0, longest - len(samples)))) for samples, _ in batch])
            )
            for clip in given:
                for _ in range(2):
                    at, width = pick.randrange(len(clip)), pick.randrange(8)
                    clip[at : at + width] = clip.mean()
            log_probs = model(given).transpose(0, 1)
            lengths = torch.full((len(batch),), log_probs.shape[0])
            targets = torch.tensor([token for _, tokens in batch for token in tokens])
            loss = loss_of(log_probs, targets, lengths, torch.tensor([len(tokens) for _, tokens in batch]))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            total += loss.item()
            if step % 50 == 0:
                print(f'{step}: loss {total / 50:.3f}', flush=True)
                total = 0.0
            if step % 300 == 0 or step == options.steps:
                save()
                print(f'{step}: {evaluate(model, held_out[:40], folder)}', flush=True)
        print(f'done: {evaluate(model, held_out, folder)}', flush=True)


if __name__ == '__main__':
    sys.exit(main())
