"""The figures of the dissertation on private online mirror descent; chapter 5 trains networks: `mirror_deep`."""

from archipel.figures import Draw, mirror_deep

FIGURES: dict[str, Draw] = {**mirror_deep.FIGURES}
ALIASES: dict[str, str] = {}
