"""A site's ledger, and a process that charges it: one that loads no more than that."""

from itertools import count
from types import SimpleNamespace

from archipel.deploy.permit import Permit
from archipel.deploy.site import SiteLedger
from archipel.deploy.torture.simulation import EPOCH
from archipel.disk import SharedFolder
from archipel.policy import Limits, Policy
from archipel.privacy.ledger import Charge, Overspent, Terms
from archipel.privacy.releases import Gaussian

NUMBERS = count(1)
TERMS = Terms("sample", "replace-one")


def ledger_of(site, terms, name="a", **limits):
    """A site's ledger as a node sees it."""
    world = SimpleNamespace(site=site, clock=lambda: EPOCH, chance=lambda: next(NUMBERS))
    policy = Policy(privacy=Limits(**limits))
    return SiteLedger(world, Permit(policy, "hash", name, frozenset(), (), 10), terms)


def spend(folder, name, answers):
    """Charge a site until it refuses; how often that went well."""
    ledger, done = ledger_of(SharedFolder(folder), TERMS, name, rho=0.05), 0
    try:
        while True:
            ledger.charge(ord(name), Charge(done, Gaussian(0.02), 1))
            done += 1
    except Overspent as refused:
        answers.put((done, str(refused)))
