"""Identity: an authority for the federation, and a certificate for each node, whose common name is the node's name.

A node needs `authority.pem`, `NAME.pem` and `NAME.key`. `authority.key` makes certificates; it stays with whoever runs
the federation.
"""

import datetime
import ipaddress
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from archipel.errors import BadInput, Missing

AUTHORITY = "authority"
REVOKED = "revoked.txt"  # names, beside the certificates
YEARS, DAYS = 10, 365  # an authority is good for, a certificate is good for


def x509() -> Any:
    try:
        from cryptography import x509
    except ImportError as lacking:
        raise Missing("Certificates need the cryptography package: pip install 'archipel[deploy]'.") from lacking
    return x509


def make(folder: Path, nodes: Mapping[str, Iterable[str]], days: int = DAYS) -> list[str]:
    """An authority and a certificate for each node (with the hosts it listens at); what is there stays.

    Returns the names of those that were made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / f"{AUTHORITY}.pem").exists():
        make_authority(folder)
    made = []
    for name, hosts in nodes.items():
        if not (folder / f"{name}.pem").exists():
            make_certificate(folder, name, hosts, days)
            made.append(name)
    return made


def renew(folder: Path, name: str, hosts: Iterable[str], days: int = DAYS) -> None:
    """A new key and certificate in the place of a node's old ones, which stay good until they expire."""
    if not (folder / f"{name}.pem").exists():
        raise BadInput("--renew", name, f"a node whose certificate is in {folder}")
    make_certificate(folder, name, hosts, days)


def revoke(folder: Path, name: str) -> None:
    """Nodes that find the name in this list, beside their certificates, have nothing more to do with it."""
    if not (folder / f"{name}.pem").exists():
        raise BadInput("--revoke", name, f"a node whose certificate is in {folder}")
    path = folder / REVOKED
    names = set(path.read_text(encoding="utf-8").split()) if path.exists() else set()
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(sorted(names | {name})) + "\n", encoding="utf-8")
    fresh.replace(path)


def make_authority(folder: Path) -> None:
    """A key and the certificate that it signs for itself."""
    library = x509()
    from cryptography.hazmat.primitives import hashes

    private = new_key()
    usage = {name: name in ("key_cert_sign", "crl_sign") for name in USES}
    authority = (
        begun(AUTHORITY, private, 365 * YEARS)
        .issuer_name(named(AUTHORITY))
        .add_extension(library.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(library.KeyUsage(**usage), critical=True)
        .sign(private, hashes.SHA256())
    )
    write(folder, AUTHORITY, private, authority)


def make_certificate(folder: Path, name: str, hosts: Iterable[str], days: int = DAYS) -> None:
    """A certificate for a node, good at both ends of a connection; only a node that listens names hosts."""
    library = x509()
    from cryptography.hazmat.primitives import hashes

    signer, authority = read_authority(folder)
    private = new_key()
    usage = {use: use == "digital_signature" for use in USES}
    ends = [library.oid.ExtendedKeyUsageOID.SERVER_AUTH, library.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives = [host_of(host) for host in hosts] or [library.DNSName(f"{name}.invalid".replace("_", "-"))]
    certificate = (
        begun(name, private, days)
        .issuer_name(authority.subject)
        .add_extension(library.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(library.KeyUsage(**usage), critical=True)
        .add_extension(library.ExtendedKeyUsage(ends), critical=False)
        .add_extension(library.SubjectAlternativeName(alternatives), critical=False)
        .sign(signer, hashes.SHA256())
    )
    write(folder, name, private, certificate)


USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def named(name: str) -> Any:
    library = x509()
    return library.Name([library.NameAttribute(library.oid.NameOID.COMMON_NAME, name)])


def begun(name: str, private: Any, days: int) -> Any:
    """A certificate that lacks its issuer. It is valid from yesterday: a device's clock may be behind."""
    library, now = x509(), datetime.datetime.now(datetime.UTC)
    return (
        library.CertificateBuilder()
        .subject_name(named(name))
        .public_key(private.public_key())
        .serial_number(library.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def host_of(host: str) -> Any:
    library = x509()
    try:
        return library.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return library.DNSName(host)


def write(folder: Path, name: str, private: Any, certificate: Any) -> None:
    """The key first, readable by its owner only, then the certificate: who has one has both."""
    from cryptography.hazmat.primitives import serialization as form

    secret = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = certificate.public_bytes(form.Encoding.PEM)
    for suffix, content, mode in ((".key", secret, 0o600), (".pem", public, 0o644)):
        part = folder / f"{name}{suffix}.part"
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
        part.replace(folder / f"{name}{suffix}")


def read_authority(folder: Path) -> tuple[Any, Any]:
    """The authority's key and certificate."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key((folder / f"{AUTHORITY}.key").read_bytes(), None)
        return private, x509().load_pem_x509_certificate((folder / f"{AUTHORITY}.pem").read_bytes())
    except (OSError, ValueError) as problem:
        raise BadInput("deploy.keys", str(folder), "the folder with authority.key and authority.pem") from problem


def check(folder: Path, name: str) -> datetime.datetime:
    """Refuse a certificate that others would refuse; returns until when it is valid."""
    library = x509()
    found = {}
    for who in (AUTHORITY, name):
        try:
            found[who] = library.load_pem_x509_certificate((folder / f"{who}.pem").read_bytes())
        except OSError as problem:
            right = f"a folder with {who}.pem, as `archipel keys` makes it"
            raise BadInput("deploy.keys", str(folder), right) from problem
        except ValueError as problem:
            right = "a certificate, as `archipel keys` makes it; this file holds something else"
            raise BadInput("deploy.keys", str(folder / f"{who}.pem"), right) from problem
    if not (folder / f"{name}.key").exists():
        raise BadInput("deploy.keys", str(folder), f"a folder with {name}.key")
    mine = found[name]
    subject = mine.subject.get_attributes_for_oid(library.oid.NameOID.COMMON_NAME)[0].value
    if subject != name:
        raise BadInput("deploy.keys", str(folder / f"{name}.pem"), f"{name}'s own certificate; this is {subject}'s")
    try:
        mine.verify_directly_issued_by(found[AUTHORITY])
    except Exception as problem:  # whatever is wrong with a signature
        right = "a certificate of the authority beside it"
        raise BadInput("deploy.keys", str(folder / f"{name}.pem"), right) from problem
    check_secret(folder / f"{name}.key", name, mine)
    until = mine.not_valid_after_utc
    if until <= datetime.datetime.now(datetime.UTC):
        right = f"a certificate that is valid; this one expired on {until:%Y-%m-%d} (delete it, then `archipel keys`)"
        raise BadInput("deploy.keys", str(folder / f"{name}.pem"), right)
    return until


def check_secret(path: Path, name: str, certificate: Any) -> None:
    """Refuse a key that cannot be read, or that the certificate was not made for: nobody would answer its node."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    anew = f"`archipel keys federation.toml --renew {name}`"
    again = f"copy {name}.pem and {name}.key once more, or make both anew ({anew})"
    try:
        private: Any = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as problem:
        why = f" ({problem.strerror})" if isinstance(problem, OSError) else ""
        raise BadInput("deploy.keys", str(path), f"a secret key that can be read{why}: {again}") from problem
    if private.public_key() != certificate.public_key():
        raise BadInput("deploy.keys", str(path), f"the secret key of the certificate beside it: {again}")


# --- what a node says, signed ----------------------------------------------------------------------------------------


def vouch(folder: Path, name: str, said: bytes) -> bytes:
    """A node's certificate, and its signature on what it says."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    own = x509().load_pem_x509_certificate((folder / f"{name}.pem").read_bytes()).public_bytes(form.Encoding.DER)
    private: Any = form.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
    signature = private.sign(said, ec.ECDSA(hashes.SHA256()))
    return b"".join(len(part).to_bytes(2, "big") + part for part in (own, signature))


def vouched(folder: Path, name: str, said: bytes, proof: bytes) -> bool:
    """Whether the node of a name, by a certificate of this folder's authority that is valid now, signed something."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    library = x509()
    end = 2 + int.from_bytes(proof[:2], "big")
    last = end + 2 + int.from_bytes(proof[end : end + 2], "big")
    try:
        theirs = library.load_der_x509_certificate(proof[2:end])
        theirs.verify_directly_issued_by(library.load_pem_x509_certificate((folder / f"{AUTHORITY}.pem").read_bytes()))
        theirs.public_key().verify(proof[end + 2 : last], said, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, TypeError):
        return False
    now, names = (
        datetime.datetime.now(datetime.UTC),
        theirs.subject.get_attributes_for_oid(library.oid.NameOID.COMMON_NAME),
    )
    return theirs.not_valid_before_utc <= now <= theirs.not_valid_after_utc and [one.value for one in names] == [name]
