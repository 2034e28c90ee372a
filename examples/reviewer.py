"""An agent that reviews a pull request and publishes its review, once."""

from surefoot import Agent, Approval
from surefoot.connectors import github

reviewer = Agent(
    name="reviewer",
    model="openai:gpt-5",
    instructions="Review the pull request, then publish your review as one comment.",
    tools=[
        github.read_pull_request,
        github.create_issue_comment.using(approval=Approval(expires=86_400), settle=60),  # seconds
    ],
)
