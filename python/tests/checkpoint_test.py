import io
import json
import mmap
import os
import pickle
import shutil
import threading
import unittest
import warnings
from unittest import mock

import numpy
import testing
import torch
from rubato import checkpoint, collective, env, folders, plain
from rubato.torch import data


class Note(checkpoint.State):
    def __init__(self, name, text=""):
        super().__init__(name)
        self.text = text

    def save(self, fileobj):
        fileobj.write(self.text.encode())

    def load(self, fileobj):
        self.text = fileobj.read().decode()


class Numbers(checkpoint.State):
    """A state that is copied, as a model's is."""

    def __init__(self, name="numbers"):
        super().__init__(name)
        self.values = torch.arange(50_000, dtype=torch.float64)
        self.kinds = [torch.ones(3, dtype=torch.bfloat16), torch.tensor(2.5), torch.empty(0), torch.eye(3).t()]

    def freeze(self, buffers):
        return checkpoint.frozen([self.values, *self.kinds], buffers)

    def load(self, fileobj):
        self.values, *self.kinds = plain.load(fileobj)


class Checkpoint(testing.LibraryTest):
    def folders(self):
        return sorted(os.listdir(env.checkpoint_path()))

    def reload(self, name):
        testing.forget()
        note = Note(name)
        return note.text if checkpoint.load_state(note) else None

    def test_a_later_save_of_the_same_life_replaces_the_earlier(self):
        note = Note("note")
        for text in ("one", "two", "three", "four", "five"):
            note.text = text
            checkpoint.save_all_states()
        self.assertEqual(len(self.folders()), checkpoint.KEEP)
        self.assertEqual(self.reload("note"), "five")

    def test_what_a_script_makes_late_is_what_its_life_began_from(self):
        Note("late", "of the life before")
        checkpoint.save_all_states()
        testing.forget()
        early = Note("early")
        self.assertFalse(checkpoint.load_first(early))
        checkpoint.save_all_states()  # of this life; "late" has no place in it
        late = Note("late")
        with mock.patch.object(checkpoint, "newest", side_effect=AssertionError("looked for once more")):
            self.assertTrue(checkpoint.load_first(late))
        self.assertEqual(late.text, "of the life before")

    def test_what_nobody_has_made_yet_is_given_to_others_too(self):
        Note("loop", "in the middle")
        Note("model", "weights")
        checkpoint.save_all_states()
        testing.forget()
        checkpoint.load_first(Note("model"))
        given = plain.load(io.BytesIO(collective._dump(checkpoint.snapshot())))
        testing.forget()
        os.environ["ADAPTDL_CHECKPOINT_PATH"] += "-of-a-fresh-node"
        model = Note("model")
        checkpoint.receive(given)
        loop = Note("loop")
        self.assertTrue(checkpoint.load_first(loop))
        self.assertEqual((model.text, loop.text), ("weights", "in the middle"))

    def test_a_damaged_checkpoint_is_passed_over_with_a_warning(self):
        note = Note("note", "good")
        checkpoint.save_all_states()
        note.text = "bad"
        checkpoint.save_all_states()
        with open(os.path.join(checkpoint.newest(), "note"), "wb") as file:
            file.write(b"evi")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(self.reload("note"), "good")
        self.assertIn("was changed after it was saved", str(caught[0].message))

    def test_what_a_crash_left_behind_is_not_taken_and_goes(self):
        note = Note("note", "whole")
        checkpoint.save_all_states()
        draft = os.path.join(env.checkpoint_path(), ".draft-1")
        os.makedirs(draft)
        with open(os.path.join(draft, "note"), "wb") as file:
            file.write(b"half")
        self.assertEqual(self.reload("note"), "whole")
        checkpoint.save_all_states()
        self.assertFalse(os.path.exists(draft))
        del note

    def test_a_folder_of_adaptdl_without_a_manifest_is_read(self):
        folder = os.path.join(env.checkpoint_path(), "checkpoint-4")
        os.makedirs(folder)
        with open(os.path.join(folder, "note"), "wb") as file:
            file.write(b"old")
        self.assertEqual(self.reload("note"), "old")

    def test_a_save_in_the_background_is_there_after_wait(self):
        note = Note("note", "kept")
        checkpoint.save_all_states(background=True)
        note.text = "changed after the bytes were taken"
        folder = checkpoint.wait()
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["files"]["note"]["size"], 4)
        self.assertEqual(self.reload("note"), "kept")

    def test_what_a_later_generation_saved_elsewhere_is_newer(self):
        """Rank 0 has moved in place, to a node that has nothing of what the one before wrote."""
        folders = [os.path.join(self.folder.name, name) for name in ("a", "b", "both")]
        for folder, generation, texts in ((folders[0], 3, range(40)), (folders[1], 4, ["later"])):
            self.be(0, 2, generation)
            os.environ["ADAPTDL_CHECKPOINT_PATH"] = folder
            note = Note("note")
            for text in texts:
                note.text = str(text)
                checkpoint.save_all_states()
        for folder in folders[:2]:
            shutil.copytree(folder, folders[2], dirs_exist_ok=True)
        os.environ["ADAPTDL_CHECKPOINT_PATH"] = folders[2]
        self.be(0, 1, 5)
        self.assertEqual(self.reload("note"), "later")
        Note("second").text = "and on"
        checkpoint.save_all_states()
        self.assertEqual(self.reload("second"), "and on")

    def test_a_folder_of_an_older_version_is_gone_on_with(self):
        for number in (7, 40):
            os.makedirs(os.path.join(env.checkpoint_path(), f"checkpoint-{number}"))
        for generation in (0, 2):
            self.be(0, 1, generation)
            Note("note").text = f"of {generation}"
            checkpoint.save_all_states()
            self.assertEqual(self.reload("note"), f"of {generation}")

    def test_a_save_under_way_keeps_the_number_of_the_generation_that_it_is_of(self):
        self.be(0, 2, 3)
        Note("note").text = "of 3"
        go, real = threading.Event(), checkpoint._write
        with mock.patch.object(checkpoint, "_write", lambda *args: go.wait(60) and real(*args)):
            checkpoint.save_all_states(background=True)
            os.environ["RUBATO_GENERATION"] = "4"
            go.set()
            folder = checkpoint.wait()
        self.assertEqual(os.path.basename(folder), "checkpoint-3000000")

    def test_beside_the_training_only_a_copy_is_waited_for(self):
        numbers, threads, real = Numbers(), [], plain.Document.write
        expected = [one.clone() for one in (numbers.values, *numbers.kinds)]

        def write(document, fileobj):
            threads.append(threading.current_thread())
            real(document, fileobj)

        for prepared in (False, True):
            checkpoint._buffers.clear()
            if prepared:
                checkpoint.prepare()
            go, write_durably = threading.Event(), checkpoint._write_durably
            with mock.patch.object(plain.Document, "write", write), mock.patch.object(
                    checkpoint, "_write_durably", lambda *args: go.wait(60) and write_durably(*args)):
                checkpoint.save_all_states(background=True)
                self.assertTrue(checkpoint.is_writing())
                for one in (numbers.values, *numbers.kinds):
                    one.zero_()  # training goes on while the disk is slow
                go.set()
                checkpoint.wait()
            self.assertFalse(checkpoint.is_writing())
            testing.forget()
            numbers = Numbers()
            self.assertTrue(checkpoint.load_state(numbers))
            for one, other in zip((numbers.values, *numbers.kinds), expected):
                self.assertTrue(torch.equal(one, other) and one.dtype == other.dtype)
        self.assertNotIn(threading.main_thread(), threads)
        self.assertEqual(len(threads), 2)

    def test_no_save_is_due_while_the_last_one_is_being_written(self):
        Note("note")
        loop = data.Loop(4)
        loop._saved_at -= 2 * data.CHECKPOINT_EVERY_S
        go, real = threading.Event(), checkpoint._write
        with mock.patch.object(checkpoint, "_write", lambda *args: go.wait(60) and real(*args)):
            checkpoint.save_all_states(background=True)
            loop._exchange(0)
            self.assertEqual(loop._exchange(0)[data._SAVE], 0)  # flags are those of the call before
            go.set()
            checkpoint.wait()
        loop._exchange(0)
        self.assertEqual(loop._exchange(0)[data._SAVE], 1)

    def test_a_save_that_is_due_is_made_once(self):
        Note("note")
        loop = data.Loop(4)
        with mock.patch.object(checkpoint, "save_all_states", wraps=checkpoint.save_all_states) as saves:
            for expected in (1, 2):
                loop._saved_at -= 2 * data.CHECKPOINT_EVERY_S
                for _ in range(5):
                    loop.agree()
                    checkpoint.wait()
                self.assertEqual(saves.call_count, expected)

    def test_whatever_a_state_throws_while_it_is_written_is_a_failure(self):
        class Bad:
            def write(self, fileobj):
                raise ValueError("no such thing")

        note = Note("note", "old")
        checkpoint.save_all_states()
        note.freeze = lambda buffers: Bad()
        with self.assertRaisesRegex(ValueError, "no such thing"):
            checkpoint.save_all_states()
        with self.assertWarnsRegex(UserWarning, "no such thing"):
            checkpoint.save_alone()
        checkpoint.save_all_states(background=True)
        with self.assertWarnsRegex(UserWarning, "no such thing"):
            checkpoint._end_background()
        self.assertEqual(self.reload("note"), "old")

    def test_memory_that_is_not_there_as_wanted_is_made_otherwise(self):
        with mock.patch.object(torch, "empty", side_effect=RuntimeError("cannot be pinned")):
            self.assertEqual(checkpoint._host_memory(4096, True).numel(), 4096)

        class Pages(mmap.mmap):
            def madvise(self, *_):
                raise OSError(22, "Invalid argument")

        with mock.patch.object(checkpoint.mmap, "mmap", Pages):
            self.assertEqual(checkpoint._host_memory(4096, False).numel(), 4096)

    def test_memory_that_was_prepared_for_nothing_is_given_back(self):
        Numbers()
        checkpoint._buffers.clear()
        checkpoint.prepare()
        checkpoint._buffers._maker.join()
        self.assertIsNotNone(checkpoint._buffers._memory)
        checkpoint._buffers.clear()
        self.assertIsNone(checkpoint._buffers._memory)
        self.assertIsNone(checkpoint._buffers._maker)

    def test_a_failure_beside_the_training_does_not_end_it(self):
        note = Note("note", "lost")
        with mock.patch.object(checkpoint, "_write_durably", side_effect=OSError(28, "No space left on device")):
            checkpoint.save_all_states(background=True)
            checkpoint._writer.join()
        note.text = "kept"
        with self.assertWarnsRegex(UserWarning, "No space"):
            checkpoint.save_all_states(background=True)
        checkpoint.wait()
        self.assertEqual(self.reload("note"), "kept")

    def test_a_full_disk_is_said_and_leaves_the_old_one(self):
        note = Note("note", "old")
        checkpoint.save_all_states()
        note.text = "new"
        real = checkpoint._write_durably

        def full(path, data):
            raise OSError(28, "No space left on device", path)

        checkpoint._write_durably = full
        self.addCleanup(setattr, checkpoint, "_write_durably", real)
        with self.assertRaisesRegex(OSError, "No space"):
            checkpoint.save_all_states()
        self.assertEqual(self.reload("note"), "old")

    def test_names_that_are_no_file_names_are_refused(self):
        for name in ("", "a/b", ".", "..", "manifest.json", 7):
            with self.assertRaises(ValueError):
                Note(name)
        Note("once")
        with self.assertRaisesRegex(ValueError, "exists already"):
            Note("once")

    def test_only_rank_0_writes(self):
        self.be(1, 2)
        Note("note", "x")
        checkpoint.save_all_states()
        self.assertFalse(os.path.exists(env.checkpoint_path()))


class Shards(folders.FolderState):
    def write(self, folder):
        with open(os.path.join(folder, "shard"), "w", encoding="utf-8") as file:
            file.write("x")

    def read(self, folder):
        pass


class Folders(testing.LibraryTest):
    def test_what_a_checkpoint_names_stays_while_saves_fail(self):
        shards = Shards("shards")
        checkpoint.save_all_states()
        first = shards._folder
        path = env.checkpoint_path()
        kept = ["shards.0.99.tmp.of-the-person", "shards.other.1.1", "shardsX1.1"]
        for name in kept + ["shards.0.77.tmp"]:
            os.makedirs(os.path.join(path, name))
        with mock.patch.object(checkpoint, "_write", side_effect=OSError(28, "No space left on device")):
            for _ in range(8):
                with self.assertRaises(OSError):
                    checkpoint.save_all_states()
        there = os.listdir(path)
        self.assertIn(first, there)
        self.assertFalse([name for name in there if name.endswith(".tmp")])
        self.assertEqual(set(kept) - set(there), set())
        for _ in range(8):
            checkpoint.save_all_states()
        there = os.listdir(path)
        self.assertNotIn(first, there)
        self.assertLessEqual(len([name for name in there if name.startswith("shards.0.") and name not in kept]),
                             checkpoint.KEEP + 1)


class PlainValues(unittest.TestCase):
    def there_and_back(self, value):
        buffer = io.BytesIO()
        plain.dump(value, buffer)
        return plain.load(io.BytesIO(buffer.getvalue()))

    def test_come_back_as_they_were(self):
        value = {"a": [1, 2.5, None, True, "text"], 3: (1, (2,)), "set": {1, 2}, "bytes": b"\0\xff", (1, 2): {}}
        self.assertEqual(self.there_and_back(value), value)
        array = self.there_and_back({"array": numpy.arange(6.0).reshape(2, 3)})["array"]
        self.assertEqual(array.tolist(), [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        tensor = self.there_and_back([torch.arange(3), torch.tensor(2.0)])
        self.assertEqual([one.tolist() for one in tensor], [[0, 1, 2], 2.0])

    def test_sparse_tensors_stay_sparse(self):
        one = torch.sparse_coo_tensor([[0, 2, 2], [1, 0, 0]], [1.5, 2.0, 3.0], (3, 4))
        scalars = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (3, 2))
        for tensor in (one, one.coalesce(), scalars, torch.sparse_coo_tensor(torch.zeros(2, 0), [], (3, 4))):
            back = self.there_and_back({"x": tensor})["x"]
            self.assertEqual((back.layout, back.shape, back.is_coalesced()),
                             (torch.sparse_coo, tensor.shape, tensor.is_coalesced()))
            self.assertTrue(torch.equal(back._indices(), tensor._indices()))
            self.assertTrue(torch.equal(back._values(), tensor._values()))
        with self.assertRaisesRegex(ValueError, "outside"):
            plain.decode({"$sparse": [0, 1, [3], False]}, [torch.tensor([[3]]), torch.ones(1)])
        with self.assertRaisesRegex(TypeError, r"state\['x'\]\[1\] .*sparse_csr"):
            plain.Document({"x": [1, torch.eye(3).to_sparse_csr()]})

    def test_tensors_are_neither_written_nor_read_with_pickle(self):
        tensors = [torch.ones(3, dtype=kind) for kind in plain.KINDS.values()] + [torch.randn(40, 600), torch.zeros(0, 2)]
        with mock.patch.object(torch, "load", side_effect=AssertionError), \
                mock.patch.object(torch, "save", side_effect=AssertionError):
            back = self.there_and_back(tensors)
        for one, other in zip(tensors, back):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            self.assertTrue(torch.equal(plain.as_bytes(one), plain.as_bytes(other)))

    def test_files_of_the_first_version_are_read_but_not_from_the_network(self):
        text = json.dumps(plain.encode({"weight": torch.ones(2), "step": 3}, tensors := [], "state")).encode()
        file = io.BytesIO()
        file.write(len(text).to_bytes(8, "big") + text)
        torch.save(tensors, file)
        value = plain.load(io.BytesIO(file.getvalue()), of_old_version=True)
        self.assertEqual((value["weight"].tolist(), value["step"]), ([1.0, 1.0], 3))
        with self.assertRaisesRegex(ValueError, "files only"):
            plain.load(io.BytesIO(file.getvalue()))
        with self.assertRaisesRegex(ValueError, "files only"):
            collective._load(file.getvalue())

    def test_sizes_that_lie_are_refused_before_memory_is_taken(self):
        file = io.BytesIO()
        plain.dump([torch.ones(4)], file)
        for lie in (b"[4000000000000]", b"[-1]"):
            header = file.getvalue()[8:].split(b"]]}")[0].replace(b"[4]", lie) + b"]]}"
            data = len(header).to_bytes(8, "big") + header + file.getvalue()[-16:]
            with self.assertRaises(ValueError):
                plain.load(io.BytesIO(data))

    def test_what_could_run_is_neither_written_nor_read(self):
        with self.assertRaisesRegex(TypeError, r"state\['x'\]"):
            plain.dump({"x": print}, io.BytesIO())
        for data in (b"", b"1234", (2).to_bytes(8, "big") + b"{}" + pickle.dumps(print),
                     (13).to_bytes(8, "big") + b'{"$tensor": 0}'):
            with self.assertRaises(ValueError):
                plain.load(io.BytesIO(data))


if __name__ == "__main__":
    unittest.main()
