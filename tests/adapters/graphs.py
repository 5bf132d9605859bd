"""Graphs and agents of LangGraph whose steps are the same in every run, and what they did."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt


class Counting(BaseChatModel):
    """Asks for two tools in each of its first ``rounds`` calls of a turn, and then answers."""

    rounds: int = 3
    words: str = "thinking"

    @property
    def _llm_type(self) -> str:
        return "counting"

    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> ChatResult:
        number = sum(one.type == "ai" for one in messages)
        human = max(at for at, one in enumerate(messages) if one.type == "human")
        name, answer = f"ai-{number}", AIMessage(f"done {number}", id=f"ai-{number}")
        if sum(one.type == "ai" for one in messages[human:]) < self.rounds:
            given = [{"a": number, "b": b} for b in range(2)]
            calls = [{"name": "add", "args": one, "id": f"{name}-{one['b']}"} for one in given]
            answer = AIMessage(f"{self.words} {number}", id=name, tool_calls=calls)
            answer.usage_metadata = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
            answer.response_metadata = {"model_name": "counting", "finish_reason": "tool_calls"}
        return ChatResult(generations=[ChatGeneration(message=answer)])


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent_with(saver: Any, *, rounds: int = 3, words: str = "thinking", **more: Any) -> Any:
    """An agent that calls ``add``."""
    return create_agent(Counting(rounds=rounds, words=words), [add], checkpointer=saver, **more)


def run_of(thread: str) -> Any:
    """The config of a run in a thread."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": 10_000}


def asks(text: str, name: str | None = None) -> Any:
    """A person's message as a graph's input."""
    return {"messages": [HumanMessage(text, id=name)]}


def plain(value: Any) -> Any:
    """A value without the ids that each run makes anew. Lists and tuples are alike."""
    if isinstance(value, BaseMessage):
        fields = value.model_dump()
        if not str(value.id).startswith("ai-"):
            fields.pop("id")
        return type(value).__name__, plain(fields)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def told(state: Any) -> Any:
    """What a snapshot of a state says."""
    tasks = [
        (one.name, plain(one.result), [was.value for was in one.interrupts]) for one in state.tasks
    ]
    return plain(state.values), state.next, state.metadata, tasks, state.parent_config is None


def agent_story(saver: Any) -> list[Any]:
    """Two turns, time travel, an edit of the state, and a branch of an old one."""
    run, agent, found = run_of("agent"), agent_with(saver), []
    found.append(plain(agent.invoke(asks("hi"), run)))
    history = list(agent.get_state_history(run))
    found.append([told(one) for one in history])
    found.append(plain(agent.invoke(asks("again"), run)))
    found.append(plain(agent.invoke(None, history[3].config)))
    held = agent.get_state(run).values["messages"]
    edits = [RemoveMessage(id=held[1].id), HumanMessage("edited", id=held[0].id)]
    agent.update_state(run, {"messages": edits})
    found.append([told(one) for one in agent.get_state_history(run)])
    branch = agent.update_state(history[-3].config, asks("branch"))
    found.append(plain(agent.invoke(None, branch)))
    found.append([told(one) for one in agent.get_state_history(run)])
    return found


class Work(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    log: Annotated[list[Any], operator.add]
    files: dict[str, str]
    rounds: int
    odd: Any


def worker(saver: Any, *, rounds: int = 4, file: str = "x" * 2_000) -> Any:
    """A graph that fans out, asks a person, and grows a list and a dict in each of its rounds."""

    def plan(state: Any) -> Any:
        number = state.get("rounds", 0)
        files = {**state.get("files", {}), f"f{number}": file}
        odd = (1, b"\x00\xff", 1.5, {1: 2}, float("inf"), "\ud800")
        log = [{"at": number, "text": "é" * 20}]
        return {"rounds": number + 1, "log": log, "files": files, "odd": odd}

    def work(state: Any) -> Any:
        return {"log": [f"work {state['at']}"], "messages": [AIMessage(f"work {state['at']}")]}

    def ask(state: Any) -> Any:
        got = interrupt({"about": state["messages"][-1].content})
        return {"messages": [AIMessage(f"got {got}")]}

    graph: Any = StateGraph(Work)
    for name, node in {"plan": plan, "work": work, "ask": ask}.items():
        graph.add_node(name, node)
    graph.add_edge(START, "plan")
    fan = [Send("work", {"at": at}) for at in range(3)]
    graph.add_conditional_edges("plan", lambda state: fan, ["work"])
    graph.add_edge("work", "ask")
    graph.add_conditional_edges("ask", lambda one: "plan" if one["rounds"] < rounds else END)
    return graph.compile(checkpointer=saver)


def worker_story(saver: Any) -> list[Any]:
    """A graph that fans out and stops for a person, four times."""
    graph, run, found = worker(saver), run_of("worker"), []
    graph.invoke(asks("go"), run)
    for number in range(4):
        found.append(told(graph.get_state(run)))
        graph.invoke(Command(resume=f"answer {number}"), run)
    found.append([told(one) for one in graph.get_state_history(run)])
    return found


def nested_story(saver: Any) -> list[Any]:
    """An agent as a node of another graph, twice."""
    graph: Any = StateGraph(Work)
    graph.add_node("agent", create_agent(Counting(rounds=2), [add]))
    graph.add_node("end", lambda state: {"log": ["end"]})
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "end")
    made, run = graph.compile(checkpointer=saver), run_of("nested")
    found = [plain(made.invoke(asks(text), run)) for text in ("one", "two")]
    found.append([told(one) for one in made.get_state_history(run)])
    counts = []
    for one in saver.list(run_of("nested")):
        space = one.config["configurable"]["checkpoint_ns"].split(":")[0]
        if space:
            values = plain(one.checkpoint)["channel_values"]
            counts.append((space, len(values.get("messages", []))))
    return [*found, sorted(counts)]
