"""Twelve mistakes that torture must find. Each is a function that makes one, until it is undone."""

from typing import Any

from archipel.deploy import wire
from archipel.deploy.accounts import SpendingAccount
from archipel.deploy.mailbox import Mailbox
from archipel.deploy.node import Node
from archipel.deploy.player import Player
from archipel.deploy.post import PostOffice
from archipel.deploy.store import FILES, HEAD, MAGIC, Store, checksum, packed
from archipel.deploy.wire import near
from archipel.node import Edge, clear


def acknowledge_before_the_checkpoint(patch: Any) -> None:
    save = Node.save

    def mutated(node):
        node.office.commit()
        save(node)

    patch.setattr(Node, "save", mutated)


def sync_left_out(patch: Any) -> None:
    save = Store.save

    def mutated(store, record):
        durable, store.durable = store.durable, False
        save(store, record)
        store.durable = durable

    patch.setattr(Store, "save", mutated)


def rename_before_sync(patch: Any) -> None:
    def mutated(store, record):
        data, number = packed(record), store.number + 1
        content = MAGIC + HEAD.pack(number, len(data), checksum(number, data)) + data
        store.disk.replace(FILES[number % 2], content)
        store.disk.sync()
        store.files[number % 2] = store.disk.open(FILES[number % 2])
        store.number = number

    patch.setattr(Store, "save", mutated)


def sequence_not_checked(patch: Any) -> None:
    def mutated(office, other, frame):
        ack = near(frame.ack, other.acked)
        if other.acked < ack <= other.safe_out:
            office.acknowledged(other, ack)
        office.hear_from(other)
        if frame.kind not in (wire.ACK, wire.LOST):
            other.waiting.append(frame)
            other.next_in += 1

    patch.setattr(PostOffice, "accept", mutated)


def charge_after_send(patch: Any) -> None:
    paid, save = SpendingAccount.paid, Node.save

    def later(account, n, me):
        account.owed = n, me

    def mutated(node):
        save(node)
        if getattr(node.account, "owed", None):
            owed, node.account.owed = node.account.owed, None
            paid(node.account, *owed)

    patch.setattr(SpendingAccount, "paid", later)
    patch.setattr(Node, "save", mutated)


def noise_drawn_again_on_a_resend(patch: Any) -> None:
    send = PostOffice.send_letter

    def mutated(office, other, seq):
        letter = other.letters[seq - other.acked]
        if letter.kind == wire.WORD and seq < other.sent:
            body = bytes([letter.body[0] ^ 1]) + letter.body[1:]
            other.letters[seq - other.acked] = letter._replace(body=body)
        send(office, other, seq)

    patch.setattr(PostOffice, "send_letter", mutated)


def an_old_state_accepted(patch: Any) -> None:
    accept, greeted = PostOffice.accept, PostOffice.greeted

    def taken(office, other, frame):
        if near(frame.ack, other.acked) > other.safe_out:
            frame = frame._replace(ack=other.safe_out & 0xFFFF)
        if frame.kind != wire.LOST:
            accept(office, other, frame)

    def met(office, other, greeting):
        if greeting.mine == other.theirs and greeting.expects > other.safe_out:
            greeting = greeting._replace(expects=other.safe_out)
        greeted(office, other, greeting)

    patch.setattr(PostOffice, "accept", taken)
    patch.setattr(PostOffice, "greeted", met)


def a_duplicate_counted(patch: Any) -> None:
    collect, again = Mailbox.collect, {}

    def mutated(mailbox, turn, n):
        found = collect(mailbox, turn, n)
        if found and again.setdefault(id(mailbox), n) == n:
            mailbox.put_back(turn, found[:1], n + 1)
        return found

    patch.setattr(Mailbox, "collect", mutated)


def a_late_update_at_the_wrong_age(patch: Any) -> None:
    def mutated(player, i, turn, said, known):
        inbox, weights = player.inboxes[i], player.tables[i].weights
        clear(inbox)
        for place, s in enumerate(said):
            other = known[s.who]
            weight = weights[s.said % len(weights)].get(other.number, 0.0)
            edge = Edge(other.number, weight, 0, s.said, place)
            turn.hear(inbox, player.word_of(i, s.body), player.plan.settings, edge)
        return inbox

    patch.setattr(Player, "heard", mutated)


def a_lost_outbox_entry(patch: Any) -> None:
    state = PostOffice.state

    def mutated(office):
        dropped = {name: n.letters.pop() for name, n in office.neighbours.items() if len(n.letters) > 1}
        found = state(office)
        for name, letter in dropped.items():
            office.neighbours[name].letters.append(letter)
        return found

    patch.setattr(PostOffice, "state", mutated)


def a_stall_after_a_partition(patch: Any) -> None:
    tick = PostOffice.tick

    def mutated(office):
        tick(office)
        for other in office.neighbours.values():
            if other.wait >= 8.0:
                other.resend = float("inf")

    patch.setattr(PostOffice, "tick", mutated)


def a_leak_of_an_outbox_row_a_round(patch: Any) -> None:
    state, restore, post = PostOffice.state, PostOffice.restore, PostOffice.post

    def posted(office, to, kind, turn, round, body=b""):
        post(office, to, kind, turn, round, body)
        kept = office.__dict__.setdefault("kept", {})
        kept[round] = [to, kind, turn, body.hex()]

    def saved(office):
        return state(office) | {"kept": [[n, *row] for n, row in office.__dict__.get("kept", {}).items()]}

    def restored(office, found):
        office.kept = {n: row for n, *row in found["kept"]}
        restore(office, found)

    patch.setattr(PostOffice, "post", posted)
    patch.setattr(PostOffice, "state", saved)
    patch.setattr(PostOffice, "restore", restored)


MUTANTS = {
    function.__name__: function
    for function in (
        acknowledge_before_the_checkpoint,
        sync_left_out,
        rename_before_sync,
        sequence_not_checked,
        charge_after_send,
        noise_drawn_again_on_a_resend,
        an_old_state_accepted,
        a_duplicate_counted,
        a_late_update_at_the_wrong_age,
        a_lost_outbox_entry,
        a_stall_after_a_partition,
        a_leak_of_an_outbox_row_a_round,
    )
}
