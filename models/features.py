"""Sound to log-mel spectrograms, in NumPy alone: the same front end for training and deployment."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def mel(hertz: Any) -> Any:
    """Return the mel scale, 2595 * log10(1 + f / 700).

    Source: O'Shaughnessy, "Speech Communication", 1987.
    """
    return 2595.0 * np.log10(1.0 + np.asarray(hertz) / 700.0)


def mel_filters(bands: int, fft_size: int, rate: int, low: float, high: float) -> Array:
    """Return triangular filters [bands, fft_size // 2 + 1], float64, equally spaced in mel.

    Args:
        bands: number of filters.
        fft_size: of the transform, in samples.
        rate: of the sound, in hertz.
        low: lower edge of the first filter, in hertz.
        high: upper edge of the last filter, in hertz.
    """
    edges = np.linspace(mel(low), mel(high), bands + 2)
    hertz = 700.0 * (10.0 ** (edges / 2595.0) - 1.0)
    bins = np.fft.rfftfreq(fft_size, 1.0 / rate)
    left, centre, right = hertz[:-2, None], hertz[1:-1, None], hertz[2:, None]
    rise = (bins - left) / (centre - left)
    fall = (right - bins) / (right - centre)
    return np.maximum(0.0, np.minimum(rise, fall))


def log_mel(
    sound: Array,
    rate: int,
    frames: int,
    bands: int,
    window_s: float = 0.032,
    step_s: float = 0.016,
) -> Array:
    """Return the log-mel spectrogram [frames, bands], float32.

    Hann windows, power spectrum, mel filters from 50 Hz to the Nyquist frequency,
    log(energy + 1e-6). Shorter sounds are padded with silence, longer ones cut.

    Args:
        sound: samples [n], full scale 1.
        rate: in hertz.
        frames: number of windows.
        bands: number of mel bands.
        window_s: length of a window, in seconds.
        step_s: from one window to the next, in seconds.
    """
    window, step = round(window_s * rate), round(step_s * rate)
    need = (frames - 1) * step + window
    padded = np.zeros(need)
    padded[: min(len(sound), need)] = sound[:need]
    index = np.arange(frames)[:, None] * step + np.arange(window)
    fft_size = 1 << (window - 1).bit_length()
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(padded[index] * hann, fft_size)) ** 2
    filters = mel_filters(bands, fft_size, rate, 50.0, rate / 2)
    return np.log(power @ filters.T + 1e-6).astype(np.float32)
