"""The public names, one a line; ``eventctx.lazy_names`` reads them."""

from eventctx.testing.adapter_contract import AdapterContract as AdapterContract
from eventctx.testing.comparing import compare_policies as compare_policies
from eventctx.testing.driving import AdapterDriver as AdapterDriver
from eventctx.testing.driving import ScriptedAgent as ScriptedAgent
from eventctx.testing.fixed import FixedClock as FixedClock
from eventctx.testing.fixed import FixedRandom as FixedRandom
from eventctx.testing.host_dialects import HostDialect as HostDialect
from eventctx.testing.host_dialects import check_dialect as check_dialect
from eventctx.testing.policies import Given as Given
from eventctx.testing.policies import Outcome as Outcome
from eventctx.testing.policies import given as given
from eventctx.testing.providers import ScriptedAmplifierProvider as ScriptedAmplifierProvider
from eventctx.testing.providers import ScriptedProvider as ScriptedProvider
from eventctx.testing.recorder import EventRecorder as EventRecorder
from eventctx.testing.requests import check_request as check_request
from eventctx.testing.script import Reply as Reply
from eventctx.testing.script import ServerCall as ServerCall
from eventctx.testing.store_contract import StoreContract as StoreContract
from eventctx.testing.tools import Hang as Hang
from eventctx.testing.tools import MockContextManager as MockContextManager
from eventctx.testing.tools import ScriptedTool as ScriptedTool
from eventctx.testing.tools import big as big
