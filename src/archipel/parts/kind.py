"""A kind: a composition that has a name. Every part of it can be replaced."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from archipel.describe import Checked, Key
from archipel.errors import BadInput
from archipel.parts.compose import Parts, composed
from archipel.parts.fits import MADE_OF, check_part
from archipel.parts.protect.openly import Openly
from archipel.parts.protect.sample import AtSample
from archipel.parts.protect.word import AtWord
from archipel.turns import Plan, Setup


def part(family: str, meaning: str) -> Any:
    """A key for a part of a family: a table with a `kind` of its own."""
    return field(default=None, kw_only=True, metadata={"family": family, "key": Key(meaning)})


@dataclass(frozen=True)
class Kind(Checked):
    """What every algorithm is to a federation."""

    section: ClassVar[str] = "algorithm"
    precision: ClassVar[str] = "float32"
    topologies: ClassVar[tuple[str, ...]] = ("star", "servers", "peers", "digraph")  # the first: if none is given
    refuses: ClassVar[dict[str, str]] = {}  # topology -> why not
    no_delays: ClassVar[bool] = False  # messages must not be late
    allow_disconnected: ClassVar[bool] = False  # takes a graph in pieces
    fixed_clients: ClassVar[str] = ""  # why there can be no further clients while it runs

    @property
    def data_kind(self) -> str:
        """How the data comes: "stream", "stored" or "deep"."""
        raise NotImplementedError

    @property
    def noises_sums(self) -> bool:
        """Whether a sum is noised as a whole, not what is in it."""
        return False

    def plan(self, setup: Setup) -> Plan:
        """Everyone at the start, and their turns."""
        raise NotImplementedError

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        raise NotImplementedError

    def check(self, setup: Setup) -> dict[str, float]:
        """What theory says of it, as numbers; refuse what would go wrong."""
        return {}

    def extra_theory(self, federation: Any) -> dict[str, float]:
        """What theory says that can only be known by playing more."""
        return {}


@dataclass(frozen=True)
class Composition(Kind):
    """An algorithm of four parts. `own_parts` says which; `[algorithm.mix]` and the like replace them."""

    learn: Any = part("learn", "how nodes learn, in place of this kind's own way")
    protect: Any = part("protect", "where noise enters, in place of this kind's own place")
    share: Any = part("share", "what crosses a link, in place of this kind's own words")
    mix: Any = part("mix", "what is made of what was heard, in place of this kind's own way")
    ask: Any = part("ask", "whom a server asks, in place of this kind's own way")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in MADE_OF:
            if getattr(self, name) is not None:
                check_part(name, getattr(self, name))

    def own_parts(self, setup: Setup) -> Parts:
        """The parts that make this kind."""
        raise NotImplementedError

    @property
    def data_kind(self) -> str:
        """How the data comes: "stream", "stored" or "deep"."""
        return str(self.learn.data_kind) if self.learn is not None else self.own_data_kind

    @property
    def noises_sums(self) -> bool:
        """Whether a sum is noised as a whole: one of changes, in which all count alike, and none that is late."""
        return self.protect is not None and self.protect.where in ("sum", "mix")

    own_data_kind: ClassVar[str] = "stream"

    def parts(self, setup: Setup) -> Parts:
        """The parts, with those that were replaced."""
        own = self.own_parts(setup)
        given = {name: getattr(self, name) for name in ("learn", "protect", "share", "mix", "ask")}
        return own._replace(**{name: value for name, value in given.items() if value is not None})

    def plan(self, setup: Setup) -> Plan:
        """Everyone at the start, and their turns."""
        parts = self.parts(setup)
        if setup.privacy is not None and parts.protect.where == "nowhere":
            raise BadInput("algorithm.protect.kind", "openly", "a part that protects, or no [privacy] table")
        return composed(setup, parts)

    def models(self, tables: dict[str, Any]) -> dict[str, Any]:
        """What is learned."""
        if "peer" in tables:
            return {"clients": tables["peer"].model}
        servers = tables["server"].model
        found = {"server": servers[0]} if len(servers) == 1 else {"server": servers.mean(0), "servers": servers}
        return found | {"clients": tables["client"].model}


def at_sample(setup: Setup) -> Any:
    """Protection where noise enters with the sample, if there is a [privacy] table."""
    return Openly() if setup.privacy is None else AtSample()


def at_word(setup: Setup) -> Any:
    """Protection of a round's whole change, if there is a [privacy] table."""
    return Openly() if setup.privacy is None else AtWord()
