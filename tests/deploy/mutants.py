"""Mistakes that torture must find. Each is a function that makes one, until it is undone."""

from typing import Any

from archipel.deploy import checkpoint, node, pieces, post, wire
from archipel.deploy.accounts import SpendingAccount
from archipel.deploy.mailbox import Mailbox
from archipel.deploy.node import Node
from archipel.deploy.player import Player
from archipel.deploy.post import PostOffice
from archipel.deploy.store import FILES, HEAD, MAGIC, Store, checksum, packed
from archipel.deploy.wire import near
from archipel.node import Edge, clear
from archipel.privacy.releases import rho_of


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
            mailbox.put_back(turn, found[:1], n, n + 1)
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


def a_counter_that_wraps(patch: Any) -> None:
    for module in (wire, post, pieces):
        patch.setattr(module, "near", lambda low, expected: low)


def a_letter_of_whoever_knows_the_tag(patch: Any) -> None:
    arrived = PostOffice.arrived

    def mutated(office, sender, data):
        tag = wire.HEADER.unpack_from(data)[2] if len(data) >= wire.HEADER.size else 0
        arrived(office, next((n.name for n in office.neighbours.values() if tag == n.tags[1] != 0), sender), data)

    patch.setattr(PostOffice, "arrived", mutated)


def a_revoked_neighbour_heard(patch: Any) -> None:
    arrived = PostOffice.arrived

    def mutated(office, sender, data):
        revoked, office.revoked = office.revoked, frozenset()
        arrived(office, sender, data)
        office.revoked = revoked

    patch.setattr(PostOffice, "arrived", mutated)


def an_answer_for_another(patch: Any) -> None:
    post_letter = PostOffice.post

    def mutated(office, to, kind, turn, round, body=b""):
        last, office.last_told = getattr(office, "last_told", body), body if kind == wire.TOLD else b""
        post_letter(office, to, kind, turn, round, last if kind == wire.TOLD and last else body)

    patch.setattr(PostOffice, "post", mutated)


def an_earlier_word_said_again(patch: Any) -> None:
    act = Player.act

    def mutated(player, i, turn, degree):
        body, late = act(player, i, turn, degree)
        before = player.__dict__.get("before", body)
        player.before = body or before
        return (before if body is not None and player.round % 7 == 3 else body), late

    patch.setattr(Player, "act", mutated)


def a_word_to_one_too_few(patch: Any) -> None:
    is_there = Player.is_there

    def mutated(player, other, i):
        return is_there(player, other, i) and (player.round % 5 != 2 or other != player.view.says(i, player.round)[0])

    patch.setattr(Player, "is_there", mutated)


def a_charge_rounded_down(patch: Any) -> None:
    enter = SpendingAccount.enter

    def mutated(account, charge):
        release = account.accountant.release(account.number, 0.99 * rho_of(charge.release), account.ledger.rho())
        enter(account, charge._replace(release=release))

    patch.setattr(SpendingAccount, "enter", mutated)


def a_late_word_thrown_away(patch: Any) -> None:
    counts = Player.counts

    def mutated(player, i, said):
        return counts(player, i, said) and (player.round == said.said or player.round - said.said != player.plan.late)

    patch.setattr(Player, "counts", mutated)


def an_end_before_all_is_answered(patch: Any) -> None:
    stay = Node.stay

    def mutated(node, came):
        stay(node, came)
        node.over = True
        return 0.0

    patch.setattr(Node, "stay", mutated)


def no_goodbye(patch: Any) -> None:
    patch.setattr(Node, "say_goodbye", lambda node: None)


def a_row_written_again(patch: Any) -> None:
    measure = Node.measure

    def mutated(node):
        if node.trace is not None:
            node.trace.last = -1
        measure(node)

    patch.setattr(Node, "measure", mutated)


def a_sample_forgotten_in_a_crash(patch: Any) -> None:
    restore = checkpoint.restore

    def mutated(player, record):
        restore(player, record)
        player.data = None

    patch.setattr(node, "restore", mutated)


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
        a_counter_that_wraps,
        a_letter_of_whoever_knows_the_tag,
        a_revoked_neighbour_heard,
        an_answer_for_another,
        an_earlier_word_said_again,
        a_word_to_one_too_few,
        a_charge_rounded_down,
        a_late_word_thrown_away,
        an_end_before_all_is_answered,
        no_goodbye,
        a_row_written_again,
        a_sample_forgotten_in_a_crash,
    )
}
