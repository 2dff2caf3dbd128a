"""Modules, parameters and functional forms, named as PyTorch names them."""

from midge.core.nn import functional, init
from midge.core.nn.activation import ReLU, ReLU6, Sigmoid, Softmax, Tanh
from midge.core.nn.container import Flatten, ModuleList, Sequential
from midge.core.nn.conv import Conv2d
from midge.core.nn.dropout import Dropout
from midge.core.nn.linear import Identity, Linear
from midge.core.nn.loss import CrossEntropyLoss, MSELoss
from midge.core.nn.module import Module
from midge.core.nn.norm import BatchNorm1d, BatchNorm2d
from midge.core.nn.parameter import Parameter
from midge.core.nn.pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from midge.core.nn.recurrent import GRU, LSTM, RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "Identity",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "Parameter",
    "ReLU",
    "ReLU6",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "functional",
    "init",
]
