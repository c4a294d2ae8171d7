"""Records that cross into compiled code by address.

A record of arrays is an argument of nine numbers an array: a kernel with eighty arrays, which passes them on from
function to function, spends most of its time in the compiler on that, and each call of it on unpacking. So the heads of
the arrays (data, shape, strides) are written down once, in one block of memory, and what is passed is its address; a
row is an address and a number. Fields are read where they are used; nothing writes to the block while it is held, and
loads say so, hence loops look nothing up twice. No array is counted: whoever holds the record holds them.
"""

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, register_model, type_callable, typeof_impl, unbox
from numba.np import arrayobj
from numba.np.numpy_support import as_dtype

from archipel import node
from archipel.node import LINE

WORD = 8  # bytes
FETCHED = 1024  # bytes of a row that are asked for at most


def is_record(kind: Any) -> bool:
    """A record whose fields have one type is a NamedUniTuple, not a NamedTuple."""
    return isinstance(kind, types.NamedTuple | types.NamedUniTuple)


def words_of(kind: Any) -> int:
    """How many words a value takes in the block."""
    if is_record(kind):
        return sum(map(words_of, kind))
    return 1 + 2 * kind.ndim if isinstance(kind, types.Array) else 1


def described(kind: Any) -> str:
    """What distinguishes one kind of record from another, the same in every process."""
    if not is_record(kind):
        return str(kind)
    names = (f"{name}:{described(part)}" for name, part in zip(kind.fields, kind))
    return f"{kind.instance_class.__module__}.{kind.instance_class.__qualname__}({','.join(names)})"


class Addressed(types.Type):  # type: ignore[misc]
    """A record by its address; `row`: the row of a table, by the table's address and a number."""

    def __init__(self, kind: Any, row: bool):
        self.kind, self.row = kind, row
        text = hashlib.blake2b(described(kind).encode(), digest_size=8).hexdigest()
        super().__init__(f"{'row' if row else 'record'}_{text}")

    @property
    def key(self) -> Any:
        return self.name

    def fields(self) -> Iterator[tuple[str, Any, int]]:
        """Name, kind and place of each."""
        at = 0
        for name, part in zip(self.kind.fields, self.kind):
            yield name, part, at
            at += words_of(part)

    def field(self, name: str) -> tuple[Any, int] | None:
        return next(((part, at) for known, part, at in self.fields() if known == name), None)

    def seen(self, part: Any) -> Any:
        """The type of a field, as code sees it."""
        if is_record(part):
            return addressed(part, self.row)
        if self.row and isinstance(part, types.Array):
            if part.ndim == 1:
                return part.dtype
            return part.copy(ndim=part.ndim - 1, layout="C" if part.layout == "C" else "A")
        return part


@cache
def addressed(kind: Any, row: bool) -> Addressed:
    """The type, made once: every use of a field asks for it."""
    return Addressed(kind, row)


@register_model(Addressed)
class AddressedModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind, [("address", types.voidptr), ("row", types.intp)])


class Record:
    """A record of arrays, held for compiled code."""

    def __init__(self, record: Any):
        self.record = record
        self.type = addressed(numba.typeof(record), False)
        self.block = np.array(list(heads(record, self.type.kind)), np.int64)
        self.address = self.block.ctypes.data


def held(given: Any) -> Any:
    """The same with every record in it held."""
    if type(given) is tuple:
        return tuple(map(held, given))
    return Record(given) if isinstance(given, tuple) else given


def heads(record: Any, kind: Any) -> Iterator[int]:
    """The words of a record."""
    for value, part in zip(record, kind):
        if is_record(part):
            yield from heads(value, part)
        elif isinstance(part, types.Array):
            yield value.ctypes.data
            yield from value.shape
            yield from value.strides
        else:
            bits = np.zeros(WORD, np.uint8)
            plain = np.asarray(value).reshape(1).view(np.uint8)
            bits[: len(plain)] = plain
            yield int(bits.view(np.int64)[0])


@typeof_impl.register(Record)
def _typeof_record(value: Record, _context: Any) -> Any:
    return value.type


@unbox(Addressed)
def _unbox_record(kind: Any, value: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(value, "address")
    made = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    made.address = c.builder.inttoptr(c.pyapi.long_as_longlong(address), cgutils.voidptr_t)
    made.row = c.context.get_constant(types.intp, 0)
    c.pyapi.decref(address)
    return NativeValue(made._getvalue(), is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class AddressedFields(AttributeTemplate):  # type: ignore[misc]
    key = Addressed

    def generic_resolve(self, kind: Any, name: str) -> Any:
        found = kind.field(name)
        return None if found is None else kind.seen(found[0])


def load(builder: Any, block: Any, at: int) -> Any:
    """A word of a block; nothing writes there."""
    place = builder.gep(block, [ir.Constant(ir.IntType(64), at)], inbounds=True)
    value = builder.load(place)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@lower_getattr_generic(Addressed)
def _field(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    part, at = kind.field(name)
    given = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    block = builder.bitcast(given.address, ir.IntType(64).as_pointer())
    if is_record(part):
        inner = cgutils.create_struct_proxy(kind.seen(part))(context, builder)
        place = builder.gep(block, [ir.Constant(ir.IntType(64), at)], inbounds=True)
        inner.address, inner.row = builder.bitcast(place, cgutils.voidptr_t), given.row
        return inner._getvalue()
    if isinstance(part, types.Array):
        return array_of(context, builder, kind, part, block, at, given.row)
    place = builder.gep(block, [ir.Constant(ir.IntType(64), at)], inbounds=True)
    typed = builder.bitcast(place, context.get_data_type(part).as_pointer())
    return context.unpack_value(builder, part, typed)


def array_of(context: Any, builder: Any, kind: Any, part: Any, block: Any, at: int, row: Any) -> Any:
    """An array, or its row."""
    size = as_dtype(part.dtype).itemsize
    data, dims = load(builder, block, at), part.ndim
    shape = [load(builder, block, at + 1 + i) for i in range(dims)]
    if part.layout == "C":  # known to be so: no need to load them
        strides = [ir.Constant(ir.IntType(64), size)]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
    else:
        strides = [load(builder, block, at + 1 + dims + i) for i in range(dims)]
    if kind.row:
        if context.enable_boundscheck:
            cgutils.do_boundscheck(context, builder, row, shape[0])
        data = builder.add(data, builder.mul(row, strides[0]))
        shape, strides = shape[1:], strides[1:]
    pointer = builder.inttoptr(data, context.get_data_type(part.dtype).as_pointer())
    if kind.row and dims == 1:
        return context.unpack_value(builder, part.dtype, pointer)
    seen = kind.seen(part)
    made = arrayobj.make_array(seen)(context, builder)
    arrayobj.populate_array(made, data=pointer, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return made._getvalue()


@type_callable(node.row)
def _type_row(_context: Any) -> Any:
    def typed(table: Any, k: Any) -> Any:
        return addressed(table.kind, True) if isinstance(table, Addressed) and not table.row else None

    return typed


@lower_builtin(node.row, Addressed, types.Integer)
def _row(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    given = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
    made = cgutils.create_struct_proxy(signature.return_type)(context, builder)
    made.address, made.row = given.address, context.cast(builder, args[1], signature.args[1], types.intp)
    return made._getvalue()


@type_callable(node.fetch)
def _type_fetch(_context: Any) -> Any:
    def typed(table: Any, k: Any) -> Any:
        rows = isinstance(table, Addressed) and not table.row
        return types.none if rows or isinstance(table, types.Array) else None

    return typed


@lower_builtin(node.fetch, Addressed, types.Integer)
def _fetch(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The first array of the row, a model or what is said. To ask for more would keep what is needed now waiting."""
    given = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
    block = builder.bitcast(given.address, ir.IntType(64).as_pointer())
    part = signature.args[0].kind[0]
    while is_record(part):
        part = part[0]
    if isinstance(part, types.Array) and part.layout == "C" and part.ndim > 1:
        number = context.cast(builder, args[1], signature.args[1], types.intp)
        ask_for(builder, load(builder, block, 0), load(builder, block, 1 + part.ndim), number)
    return context.get_dummy_value()


@lower_builtin(node.fetch, types.Array, types.Integer)
def _fetch_row(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = arrayobj.make_array(signature.args[0])(context, builder, value=args[0])
    number = context.cast(builder, args[1], signature.args[1], types.intp)
    stride = cgutils.unpack_tuple(builder, array.strides, signature.args[0].ndim)[0]
    ask_for(builder, builder.ptrtoint(array.data, ir.IntType(64)), stride, number)
    return context.get_dummy_value()


def ask_for(builder: Any, begin: Any, stride: Any, row: Any) -> None:
    """The lines of a row, but not of a long one: the machine guesses what follows."""
    word, byte = ir.IntType(64), ir.IntType(8).as_pointer()
    most = ir.Constant(word, FETCHED)
    length = builder.select(builder.icmp_signed("<", stride, most), stride, most)
    begin = builder.add(begin, builder.mul(row, stride))
    asked = ir.FunctionType(ir.VoidType(), [byte, *[ir.IntType(32)] * 3])
    prefetch = cgutils.get_or_insert_function(builder.module, asked, "llvm.prefetch.p0")
    flags = [ir.Constant(ir.IntType(32), flag) for flag in (1, 3, 1)]
    with cgutils.for_range_slice(builder, ir.Constant(word, 0), length, ir.Constant(word, LINE)) as (offset, _):
        builder.call(prefetch, [builder.inttoptr(builder.add(begin, offset), byte), *flags])


@type_callable(node.clear)
def _type_clear(_context: Any) -> Any:
    return lambda record: types.none if isinstance(record, Addressed) and record.row else None


@lower_builtin(node.clear, Addressed)
def _clear(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    wipe(context, builder, signature.args[0], args[0])
    return context.get_dummy_value()


def wipe(context: Any, builder: Any, kind: Any, value: Any) -> None:
    """Zeros in every array of a row; tables are whole blocks of memory."""
    for name, part, _ in kind.fields():
        found = _field(context, builder, kind, value, name)
        if is_record(part):
            wipe(context, builder, kind.seen(part), found)
            continue
        if part.layout != "C" or part.ndim < 2:
            raise TypeError(f"{name} of {kind.kind} cannot be cleared: it is not a table")
        array = arrayobj.make_array(kind.seen(part))(context, builder, value=found)
        cgutils.memset(builder, array.data, builder.mul(array.nitems, array.itemsize), 0)
