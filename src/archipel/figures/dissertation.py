"""All figures of the dissertation: those of linear models, and those of networks, which need PyTorch to be drawn."""

from archipel.figures import mirror, mirror_deep

FIGURES = mirror.FIGURES | mirror_deep.FIGURES
