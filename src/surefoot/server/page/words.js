/**
 * Every text of the page, English and Simplified Chinese, in one table. What runs, steps and events are called comes
 * from the server (GET /v1/vocabulary): `vocabulary` keeps it.
 */

const TABLE = {
  "page.skip": ["Skip to content", "跳到主要内容"],
  "page.nav": ["Main", "主导航"],
  "page.runs": ["Runs", "运行"],
  "page.inbox": ["Inbox", "待处理"],
  "page.waiting": ["{count} waiting", "{count} 项等待处理"],
  "page.language": ["中文", "English"],
  "page.language_label": ["Switch to Chinese: 中文", "切换到英文：English"],
  "page.log_out": ["Log out", "退出登录"],
  "page.no_place": ["There is no such page.", "没有这个页面。"],
  "page.to_runs": ["Back to the runs", "返回运行列表"],
  "page.unreachable": ["The server cannot be reached. Trying again…", "无法连接服务器，正在重试……"],

  "page.unreadable": [
    "This cannot be read and is not listed. Nothing is executed on it; everything else goes on. `surefoot doctor` says what to do.",
    "以下内容无法读取，未列入列表。不会对其执行任何操作；其他一切照常进行。运行 `surefoot doctor` 查看处理办法。",
  ],

  "login.title": ["Log in", "登录"],
  "login.lead": ["This server knows people by their tokens.", "此服务器通过令牌识别用户。"],
  "login.token": ["Token", "令牌"],
  "login.hint": [
    "Made by `surefoot tokens create NAME`. It is exchanged for a session of 12 hours and kept nowhere.",
    "由 `surefoot tokens create NAME` 生成。它会换取 12 小时的会话，不会保存在任何地方。",
  ],
  "login.submit": ["Log in", "登录"],
  "login.bad_token": ["This token is unknown, revoked or expired.", "该令牌未知、已撤销或已过期。"],
  "login.over": ["Your session has ended. Log in again.", "会话已结束，请重新登录。"],

  "runs.title": ["Runs", "运行"],
  "runs.start": ["Start a run", "启动运行"],
  "runs.status": ["State", "状态"],
  "runs.agent": ["Agent", "智能体"],
  "runs.any": ["All", "全部"],
  "runs.older": ["Show older runs", "显示更早的运行"],
  "runs.none": ["No runs yet", "还没有运行"],
  "runs.none_hint": ["A run appears here as soon as it is started, from this page, the API or the command line.", "从此页面、API 或命令行启动的运行会立即出现在这里。"],
  "runs.none_such": ["No run is like that", "没有符合条件的运行"],
  "runs.none_such_hint": ["Choose another state or agent.", "请选择其他状态或智能体。"],
  "runs.by": ["by {name}", "由 {name} 启动"],
  "runs.list": ["Runs, newest first", "运行列表，最新的在前"],
  "runs.perform": ["single call", "单次调用"],

  "start.title": ["Start a run", "启动运行"],
  "start.input": ["What is to be done", "要做什么"],
  "start.submit": ["Start", "启动"],
  "start.close": ["Close", "关闭"],
  "start.again": ["Go on with this conversation", "继续此对话"],
  "start.no_agents": ["This server has no agent.", "此服务器没有智能体。"],
  "start.tools": ["Tools: {names}", "工具：{names}"],

  "run.started": ["Started", "开始"],
  "run.by": ["Started by", "启动者"],
  "run.id": ["Run", "运行"],
  "run.since": ["since", "自"],
  "run.at": ["next at", "下次"],
  "run.live": ["Live", "实时"],
  "run.connecting": ["Connecting…", "正在连接……"],
  "run.lost": ["The connection is lost. It is taken up again from the last event.", "连接已断开，将从最后一个事件继续。"],
  "run.over": ["Over", "已结束"],
  "run.cancel": ["Cancel the run", "取消运行"],
  "run.timeline": ["Timeline", "时间线"],
  "run.events": ["Events", "事件"],
  "run.events_count": ["{count} events", "{count} 个事件"],
  "run.events_all": ["Show every event", "显示所有事件"],
  "run.no_items": ["Nothing has happened yet.", "尚无动静。"],
  "run.open": ["Waiting for you", "等待您处理"],
  "run.asked": ["What was asked here", "此处询问过的问题"],
  "run.result": ["Result", "结果"],
  "run.error": ["Why: {code}", "原因：{code}"],
  "run.message": ["Message to the run", "给运行发消息"],
  "run.send": ["Send", "发送"],
  "run.queued": ["waits for its place", "等待插入"],
  "run.parent": ["Works for another run", "为另一个运行工作"],
  "run.child": ["Its run", "其运行"],
  "run.user": ["User", "用户"],
  "run.assistant": ["Assistant", "助手"],
  "run.note": ["Note", "备注"],
  "run.summary": ["Summary", "摘要"],
  "run.writing": ["writing", "正在书写"],
  "run.blocked": ["No worker can take this run: {code}", "没有工作进程可以接手此运行：{code}"],

  "cancel.title": ["Cancel this run?", "取消此运行？"],
  "cancel.lead": ["From the answer on nothing more is sent for it. Calls that had begun are listed, and what became of them is looked up.", "确认后不会再为它发送任何内容。已开始的调用会列出，并继续核对其结果。"],
  "cancel.submit": ["Cancel the run", "取消运行"],
  "cancel.keep": ["Keep it", "保留"],
  "cancel.done": ["Cancelled. Nothing more is sent.", "已取消，不会再发送任何内容。"],
  "cancel.none": ["No call had begun: nothing was sent.", "没有调用开始：未发送任何内容。"],
  "cancel.some": ["These calls may have been sent:", "以下调用可能已经发出："],

  "step.attempts": ["Attempts", "尝试"],
  "step.attempt": ["Attempt {number}", "第 {number} 次尝试"],
  "step.evidence": ["Evidence", "证据"],
  "step.arguments": ["Arguments", "参数"],
  "step.output": ["Result", "结果"],
  "step.told": ["What the model was told", "告知模型的内容"],
  "step.key": ["Operation key", "操作键"],
  "step.resource": ["Resource", "资源"],
  "step.open_resource": ["Open {id}", "打开 {id}"],
  "step.under_way": ["under way", "进行中"],
  "end.not_sent": ["not sent", "未发送"],
  "end.refused": ["refused", "被拒绝"],
  "end.applied": ["applied", "已生效"],
  "end.in_doubt": ["in doubt", "存疑"],
  "source.lookup": ["lookup", "核对"],
  "source.webhook": ["webhook", "网络回调"],
  "source.worker": ["worker", "工作进程"],
  "source.person": ["person", "人工"],
  "evidence.none": ["No evidence yet.", "尚无证据。"],
  "evidence.coverage": ["looked at: {coverage}", "核对范围：{coverage}"],
  "evidence.attempt": ["attempt {number}", "第 {number} 次尝试"],

  "inbox.title": ["Inbox", "待处理"],
  "inbox.all": ["All", "全部"],
  "inbox.approve": ["Approvals", "审批"],
  "inbox.resolve": ["Unknown outcomes", "结果未知"],
  "inbox.ask": ["Questions", "问题"],
  "inbox.duplicate": ["Duplicates", "重复"],
  "inbox.kinds": ["Kinds of questions", "问题类别"],
  "inbox.list": ["What waits for a person, oldest first", "等待处理的事项，最早的在前"],
  "inbox.none": ["Nothing waits for you", "没有等待您处理的事项"],
  "inbox.none_hint": ["Approvals, unknown outcomes and questions appear here by themselves.", "审批、未知结果和问题会自动出现在这里。"],
  "inbox.choose": ["Choose a question to see exactly what would be done.", "选择一项，查看将要执行的确切内容。"],
  "inbox.back": ["Back to the inbox", "返回待处理列表"],
  "inbox.next": ["Next question", "下一项"],

  "action.kind_approve": ["Approval", "审批"],
  "action.kind_resolve": ["Unknown outcome", "结果未知"],
  "action.kind_ask": ["Question", "问题"],
  "action.kind_duplicate": ["Duplicate", "重复"],
  "action.tool": ["Tool", "工具"],
  "action.model": ["the model", "模型"],
  "action.target": ["Target", "目标"],
  "action.run": ["Run", "运行"],
  "action.asked_by": ["Asked by", "请求者"],
  "action.agent_for": ["{agent}, started by {name}", "{agent}，由 {name} 启动"],
  "action.asked": ["Asked", "请求时间"],
  "action.expires": ["Expires", "到期"],
  "action.never": ["never", "永不"],
  "action.permission": ["Permission", "所需权限"],
  "action.hash": ["Input hash", "输入哈希"],
  "action.warnings": ["Look closely", "请仔细核对"],
  "action.source": ["Markdown source", "Markdown 源文本"],
  "action.rendering": ["Rendering", "渲染效果"],
  "action.exact": ["Everything as JSON", "完整 JSON"],
  "action.precondition": ["What held when it was asked", "提问时的状态"],
  "action.before": ["Before", "之前"],
  "action.now": ["Now", "现在"],
  "action.reason": ["Reason", "理由"],
  "action.optional": ["optional", "可选"],
  "action.do_approve": ["Approve", "批准"],
  "action.do_reject": ["Reject", "拒绝"],
  "action.do_answer": ["Answer", "回答"],
  "action.do_decline": ["Decline to answer", "拒绝回答"],
  "action.do_record": ["Record the answer", "记录答复"],
  "action.leave_both": ["Leave both", "保留两者"],
  "action.undo": ["Undo the surplus one", "撤销多余的"],
  "action.seen_to": ["I have seen to it", "我已处理"],
  "action.resolve_lead": ["This call may have been sent, and nobody could find out yet whether it was applied. Look at the target, then say what happened.", "此调用可能已发出，目前无法核实是否生效。请查看目标，然后说明结果。"],
  "action.duplicate_lead": ["This call has had an effect that was not expected, or more than one. Look at both, then decide.", "此调用产生了意外或多个结果。请查看后决定。"],
  "action.effects": ["The effects", "各个结果"],
  "action.happened": ["It happened", "已发生"],
  "action.happened_hint": ["The effect is there. Give its id or link if you have it.", "结果已存在。如有编号或链接请填写。"],
  "action.did_not_happen": ["It did not happen", "未发生"],
  "action.did_not_happen_hint": ["The effect is not there. The call may start under the same key, once its settle time is over and one more look agrees.", "结果不存在。待稳定时间结束且再次核对确认后，该调用可以以同一键开始。"],
  "action.give_up": ["It cannot be known", "无法得知"],
  "action.give_up_hint": ["The question is closed. The model is told that the outcome is not known; later evidence still counts.", "关闭此问题。模型会被告知结果未知；之后的证据仍然有效。"],
  "action.resource_id": ["Id of the effect", "结果编号"],
  "action.resource_url": ["Link to the effect", "结果链接"],
  "action.choose": ["Choose one answer.", "请选择一个答复。"],
  "action.not_permitted": ["You may look at this question; deciding it takes another permission.", "您可以查看此问题；处理它需要其他权限。"],
  "action.takes": ["It takes the permission {permission}.", "需要权限 {permission}。"],
  "action.signal": ["A program answers this, by the signal {name}.", "由程序通过信号 {name} 答复。"],
  "action.sending": ["Recording…", "正在记录……"],
  "action.lost": ["The reply did not come. Asking again under the same key…", "未收到回复，正在用同一键重新询问……"],
  "action.lost_for_now": ["The server does not answer. Your decision may have been recorded; the same button asks again under the same key.", "服务器无响应。您的决定可能已记录；再次点击会用同一键询问。"],
  "action.conflict": ["Somebody was faster. What was decided: {decision}, by {name}.", "已有人先处理。结果：{decision}，由 {name} 决定。"],
  "action.expired": ["{why}. Look at the run for what it asks now.", "{why}。请查看运行当前的问题。"],
  "action.decided": ["{decision}, by {name}", "{decision}，由 {name} 决定"],
  "action.decided_from": ["from {source}", "来自 {source}"],

  "form.yes": ["Yes", "是"],
  "form.no": ["No", "否"],
  "form.none": ["(none)", "（无）"],
  "form.lines": ["One on each line", "每行一个"],
  "form.json": ["As JSON", "JSON 格式"],
  "form.bad_json": ["This is not JSON: {problem}", "不是有效的 JSON：{problem}"],
  "form.answer": ["Your answer", "您的回答"],

  "chart.title": ["The last 24 hours", "最近 24 小时"],
  "chart.runs": ["Runs begun, by state", "启动的运行（按状态）"],
  "chart.runs_said": ["{total} runs began in 24 hours: {parts}.", "24 小时内启动 {total} 个运行：{parts}。"],
  "chart.approvals": ["Time to approval", "审批用时"],
  "chart.approvals_said": ["{total} decided: {parts}.", "已处理 {total} 项：{parts}。"],
  "chart.median": ["half within {time}", "半数在 {time} 内"],
  "chart.lookups": ["What lookups answered", "核对结果"],
  "chart.lookups_said": ["{total} looks: {parts}.", "核对 {total} 次：{parts}。"],
  "chart.now": ["now", "现在"],
  "chart.none": ["Nothing yet", "暂无数据"],
  "chart.minute": ["up to 1 min", "1 分钟内"],
  "chart.minutes": ["up to 10 min", "10 分钟内"],
  "chart.hour": ["up to 1 h", "1 小时内"],
  "chart.day": ["up to 1 day", "1 天内"],
  "chart.longer": ["longer", "更久"],

  "markdown.long": ["Too long to be rendered: read the source.", "文本过长，无法渲染：请阅读源文本。"],
  "markdown.picture": ["[picture, not loaded: {alt} {address}]", "[图片，未加载：{alt} {address}]"],

  "time.now": ["just now", "刚刚"],
  "time.seconds": ["{count} s", "{count} 秒"],
  "time.minutes": ["{count} min", "{count} 分钟"],
  "time.hours": ["{count} h", "{count} 小时"],
  "time.days": ["{count} d", "{count} 天"],
  "time.ago": ["{time} ago", "{time}前"],
  "time.in": ["in {time}", "{time}后"],
};

const LANGUAGES = ["en", "zh-CN"];
const STORED = "surefoot.language";

/** The language of the page: what was chosen here before, else what the browser asks for. */
export const language = LANGUAGES.includes(localStorage.getItem(STORED))
  ? localStorage.getItem(STORED)
  : navigator.languages?.[0]?.toLowerCase().startsWith("zh")
    ? "zh-CN"
    : "en";

/** Change the language, here and for later. */
export function switchLanguage() {
  localStorage.setItem(STORED, language === "en" ? "zh-CN" : "en");
  location.reload();
}

/** The server's words: {texts, next, events, tools}. */
export const vocabulary = { texts: {}, next: {}, events: {}, tools: {} };

function put(template, facts) {
  return template.replace(/\{(\w+)\}/g, (_, name) => (facts[name] === undefined || facts[name] === null ? "" : String(facts[name])));
}

/** A text of the table with its facts put in. */
export function t(key, facts = {}) {
  const pair = TABLE[key];
  if (pair === undefined) throw new Error(`no text ${key}`);
  return put(pair[LANGUAGES.indexOf(language)], facts);
}

/** A text of the table, or the word itself where the table does not have it: for words that a server may add to. */
export function word(group, name) {
  return TABLE[`${group}.${name}`] === undefined ? String(name) : t(`${group}.${name}`);
}

/** A run's or a step's state in the server's words. */
export function stateText(code) {
  return vocabulary.texts[code] ?? code;
}

/** An event as a line for people, or null where it is of no interest: what `event_text` of vocabulary.py says. */
export function eventText(event, step) {
  const template = vocabulary.events[event.type];
  if (template === undefined || (event.type === "step_deferred" && event.data.delay_s === 0)) return null;
  const tool = step?.tool_name ?? null;
  const subject = tool === null ? "model" : "tool";
  const name = tool ?? vocabulary.texts.model_call ?? "";
  const own = vocabulary.tools[tool] ?? {};
  const { data } = event;
  const said = put(template, {
    ...data,
    tool: name,
    doing: own.doing ?? put(vocabulary.texts[`${subject}_running`] ?? "", { tool: name }),
    checking: own.checking ?? put(vocabulary.texts.tool_outcome_unknown ?? "", { tool: name }),
    to_text: data.to ? stateText(`run_${data.to === "waiting_for_user" ? "waiting_for_answer" : data.to}`) : "",
    delay_s: typeof data.delay_s === "number" ? data.delay_s.toFixed(1) : "",
    resource_ids: (data.resource_ids ?? []).join(", "),
    reason: data.reason ? `(${data.reason})` : "",
  });
  return said.replaceAll(" ()", "").replaceAll("（）", "").replaceAll("  ", " ").trimEnd();
}
