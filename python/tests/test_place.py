"""Where a store is and who asks it, as this environment says."""

import os
import re
import unittest
import unittest.mock

from support import Bed, noise

import stoker
from stoker import _place

SMALL = {"%04d" % number: noise(1000 + number, number) for number in range(10)}


class Alike(unittest.TestCase):
    def test_the_client_hands_over_what_the_command_does(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/stoker/src/place.rs")
        with open(path) as file:
            text = file.read()
        for name in ("KEYS", "GOOGLE", "AZURE", "AWS", "TRUST", "HDFS", "PATHS"):
            command = re.search(r"const %s: \[&str; \d+\] = \[(.*?)\];" % name, text, re.S)
            assert command is not None, name
            self.assertEqual(sorted(re.findall('"(.*?)"', command[1])), sorted(getattr(_place, "_" + name)), name)


class Variables(unittest.TestCase):
    """What is said to a node of an earlier version too, which looks nothing up."""

    def reach(self, asked=None, **variables):
        with unittest.mock.patch.dict(os.environ, variables):
            for name in [name for name in os.environ if name.startswith("AWS_") and name not in variables]:
                del os.environ[name]
            return _place.reach("s3://bucket", asked or {})

    def test_a_store_is_where_variables_say_and_asked_by_whom_they_name(self):
        both = {"AWS_ENDPOINT_URL": "http://any:1", "AWS_ENDPOINT_URL_S3": "http://s3:2"}
        for expected, variables in (
            ({}, {}),
            ({"endpoint": "http://s3:2"}, both),
            ({"endpoint": "http://any:1"}, {**both, "AWS_ENDPOINT_URL_S3": ""}),
            ({}, {**both, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "True"}),
            ({"endpoint": "http://s3:2"}, {**both, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false"}),
            ({"region": "r"}, {"AWS_REGION": "r", "AWS_DEFAULT_REGION": "d"}),
            ({"region": "d"}, {"AWS_DEFAULT_REGION": "d"}),
            ({"profile": "p"}, {"AWS_PROFILE": "p"}),
            ({}, {"AWS_PROFILE": "p", "AWS_ACCESS_KEY_ID": "k"}),
            ({}, {"AWS_PROFILE": "p", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}),
        ):
            self.assertEqual(self.reach(**variables), expected, variables)
        asked = {"endpoint": "http://own:3", "region": "o", "profile": "q"}
        self.assertEqual(self.reach(asked, **both, AWS_REGION="r", AWS_PROFILE="p"), asked, "what is said goes first")


class Programs(Bed):
    def test_a_program_that_is_not_there_or_no_node_is_said(self):
        for program in (os.path.join(self.scratch, "nothing"), self.scratch + "/bucket/no-program"):
            self.put("no-program", b"text")
            with unittest.mock.patch.dict(os.environ, {"STOKER_BIN": program}), self.assertRaisesRegex(FileNotFoundError, "STOKER_BIN"):
                self.open()
        with unittest.mock.patch.dict(os.environ, {"STOKER_BIN": "/bin/true"}):
            with self.assertRaisesRegex(stoker.Unreachable, "ends with status 0 and says nothing"):
                self.open()


class Profiles(Bed):
    """Where AWS's tools were told that the store is."""

    content = SMALL
    server_keys = ("AKIATESTTESTTEST", "known")

    def profile(self, text):
        folder = os.path.join(self.scratch, ".aws")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config"), "w") as file:
            file.write(text)

    def test_a_profile_says_where_the_store_is_and_who_asks_as_it_does_for_the_command(self):
        keys, wrong = ("aws_access_key_id = AKIATESTTESTTEST\naws_secret_access_key = %s\n" % one for one in ("known", "wrong"))
        self.profile(
            "[profile there]\nregion = us-east-1\nendpoint_url = %s\n%s" % (self.endpoint, keys)
            + "[profile stranger]\nregion = us-east-1\nendpoint_url = %s\n%s" % (self.endpoint, wrong)
            + "[profile served]\nregion = us-east-1\nservices = near\n%s" % keys
            + "[services near]\ns3 =\n  endpoint_url = %s\n" % self.endpoint
            + "[profile nowhere]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:9\n%s" % keys
        )
        # Before anything is kept.
        self.given("AWS_PROFILE", "stranger")
        with self.assertRaises(PermissionError):
            stoker.open(self.url, cache=self.cache)
        for name in ("there", "served"):
            self.given("AWS_PROFILE", name)
            data = stoker.open(self.url, cache=self.cache)
            self.addCleanup(data.close)
            self.assertTrue(data.read_many(list(SMALL)) == list(SMALL.values()), name)
            self.end_node()
        self.given("AWS_PROFILE", "nowhere")
        data = stoker.open(self.url, cache=self.cache, profile="there")
        self.addCleanup(data.close)
        self.assertEqual(data.read("0000"), SMALL["0000"], "what is said goes first")
        self.given("AWS_ENDPOINT_URL", self.endpoint)
        data = stoker.open(self.url, cache=self.cache)
        self.addCleanup(data.close)
        self.assertEqual(data.read("0000"), SMALL["0000"], "so does a variable")
        self.given("AWS_ACCESS_KEY_ID", "AKIATESTTESTTEST")
        self.given("AWS_SECRET_ACCESS_KEY", "known")
        self.given("AWS_PROFILE", "unknown")
        data = stoker.open(self.url, cache=self.cache, region="us-east-1")
        self.addCleanup(data.close)
        self.assertEqual(data.read("0000"), SMALL["0000"], "keys in the environment need no profile")


if __name__ == "__main__":
    unittest.main()
