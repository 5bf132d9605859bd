"""The queue between callers and the writing thread: batches, limits, closing."""

from __future__ import annotations

import threading

import pytest

from eventctx.stores.ack import Ack
from eventctx.stores.threads import Job, Mailbox


def job(number, size=1):
    return Job(Ack(), print, (number,), size)


def numbers(jobs):
    return [taken.args[0] for taken in jobs]


@pytest.fixture
def in_thread():
    """Run a function in a thread that the test can wait for."""
    threads = []

    def start(function):
        thread = threading.Thread(target=function, daemon=True)
        threads.append(thread)
        thread.start()
        return thread

    yield start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_all_that_waits_is_taken_at_once_in_order():
    mailbox = Mailbox(100)
    for number in range(5):
        mailbox.put(job(number))
    assert numbers(mailbox.take(10, 100)) == [0, 1, 2, 3, 4]
    assert mailbox.take(10, 100, timeout=0) == []


def test_a_batch_ends_at_its_number_of_jobs_or_bytes_and_holds_at_least_one():
    mailbox = Mailbox(1000)
    for number, size in enumerate([1, 1, 1, 50, 50, 300, 1]):
        mailbox.put(job(number, size))
    assert numbers(mailbox.take(2, 100)) == [0, 1]
    assert numbers(mailbox.take(10, 100)) == [2, 3, 4]
    assert numbers(mailbox.take(10, 100)) == [5]
    assert numbers(mailbox.take(10, 100)) == [6]


def test_a_full_mailbox_makes_the_sender_wait_for_room(in_thread):
    mailbox = Mailbox(100)
    mailbox.put(job(0, 100))
    sender = in_thread(lambda: mailbox.put(job(1, 1)))
    sender.join(0.2)
    assert sender.is_alive(), "put did not wait"
    assert numbers(mailbox.take(1, 1)) == [0]
    sender.join(60)
    assert numbers(mailbox.take(1, 1)) == [1]


def test_closing_frees_waiting_senders_and_gives_out_what_was_queued(in_thread):
    mailbox = Mailbox(100)
    mailbox.put(job(0, 100))
    answers = []
    sender = in_thread(lambda: answers.append(mailbox.put(job(1, 1))))
    sender.join(0.2)
    mailbox.close()
    sender.join(60)
    assert answers == [False]
    assert not mailbox.put(job(2))
    assert numbers(mailbox.take(10, 1000)) == [0]
    assert mailbox.take(10, 1000) is None


def test_a_waiting_receiver_is_woken_by_a_job_and_by_closing(in_thread):
    mailbox = Mailbox(100)
    taken = []
    first = threading.Event()

    def receive():
        taken.append(mailbox.take(5, 5))
        first.set()
        taken.append(mailbox.take(5, 5))

    receiver = in_thread(receive)
    mailbox.put(job(7))
    assert first.wait(60)
    mailbox.close()
    receiver.join(60)
    assert numbers(taken[0]) == [7]
    assert taken[1] is None
