// The page's words in three languages, and the translated labels of words that bundles commonly list.

const EN = {
  photo: "Start from a picture", looking: "Looking at the picture …", began: "The film begins with your picture. What happens next?",
  picture: "This file cannot be read as a picture. Choose another.", no_encoder: "This model cannot start from a picture.",
  leave: "Log out", skip: "Skip to the words", language: "Language", stage: "The picture", compose: "What happens next", progress: "Drawing",
  film: "Turns so far", fresh: "New game", again: "Play again", draw: "Draw it", deal: "Surprise me", cancel: "Stop",
  what: "Say what happens next. A model on this machine draws two seconds of cartoon and remembers the story.",
  free: "or in your own words", save: "Save as mp4", saving: "Saving, {n} %", saved: "Saved.",
  strip: "Film {n}", holder: "the fox sneaks through the city, it is getting dark", empty: "Choose some words …",
  who: "who", motion: "does", manner: "how", place: "where", hour: "when", clothes: "wears", examples: "For example",
  off: "The lamp is off. Reconnecting …", starting: "The lamp is warming up …", waiting: "{n} ahead of you, about {s} s", drawing: "Drawing, {n} of {of}",
  thinking: "Reading …", restarting: "The pencil broke; a new one is being sharpened …", stopped: "Stopped.", undone: "Turn {n} is taken back.", attract: "Drawn earlier by this model",
  turn: "Turn {n}", seconds: "drawn in {n} s", stamina: "stamina", social: "social", entertainment: "fun",
  branching: "Turn {n} is on the table. What you say next starts a second film from here.", rewind: "Cut off the later turns", clip: "Clip of turn {n}: {text}",
  nothing: "The table is empty. The first turn will be drawn here.", draining: "The server is shutting down. Your game is saved.",
  lost: "Your earlier game is no longer on this server. A new one has begun.", noise: "This server runs without a model: the pictures are only noise.",
  busy: "Many people are drawing. Try again in a moment.", rate_limited: "Too many turns in a minute. Take a breath.",
  too_many_sessions: "The table is full. Try again later.", blocked: "These words are not allowed here. Choose others.",
  instruction: "Say it in {n} characters at most.", turn_running: "This game is drawing in another window.",
  degraded: "The model cannot start right now; the server keeps trying. Your game is saved.", deadline: "That took too long. Try again.",
  worker_failed: "The model failed on this sentence. Try another.", unusable_output: "That drawing came out wrong. Try another sentence.",
  storage: "The server cannot save its games. Please tell its operator.", internal: "Something went wrong. Try again.",
  no_such_turn: "That turn is gone.", engines_mismatch: "This game was drawn by another model. Start a new one.",
  bundle_mismatch: "This game was drawn by another model. Start a new one.", unknown_session: "This game is gone. Start a new one.",
  session_closed: "This game was ended in another window. Start a new one.", wrong_token: "This game belongs to another browser. Start a new one.",
  ready: "ready", offers: "Already drawn: plays at once", offered: "Some sentences play at once.", slip: "Empty slip",
  end: "Your film ends with it and cannot be brought back. Go on?", stay: "No", go: "Yes", room: "A picture has room for two: {who} steps out.",
  live: "Let it go on", lives: "The story goes on by itself. What you say comes next.", next: "Your sentence comes next.",
  reel: "film", saveFilm: "Save the whole film with its sentences", copyLink: "Copy a link that plays this story again", filming: "The film plays once while it is saved …", link: "link", linked: "A link that plays this story again is copied.",
  story: "This link tells a story of {n} turns. Play it?", other: "It was drawn by another model: it will look different.",
  too_large: "That is too long.", version: "The page and the server do not match. Reload the page.",
};
const ZH = {
  photo: "从图片开始", looking: "正在看图片……", began: "影片从您的图片开始。接下来发生什么？", picture: "无法读取这张图片，请换一张。", no_encoder: "这个模型不能从图片开始。",
  leave: "退出登录", skip: "跳到选词", language: "语言", stage: "画面", compose: "接下来发生什么", progress: "作画进度", film: "已画的回合", fresh: "新游戏",
  again: "再放一遍", draw: "画出来", deal: "随机来一个", cancel: "停止", what: "说说接下来发生什么。这台机器上的模型会画出两秒钟的动画，并记住故事。",
  free: "或者用自己的话", save: "保存为 mp4", saving: "正在保存，{n} %", saved: "已保存。", strip: "第 {n} 条胶片",
  holder: "狐狸在森林里慢慢地走，天黑了", empty: "请选几个词……", who: "谁", motion: "做什么",
  manner: "怎样", place: "在哪里", hour: "何时", clothes: "穿什么", examples: "例如", off: "灯灭了，正在重新连接……", starting: "灯正在预热……",
  waiting: "前面还有 {n} 位，约 {s} 秒", drawing: "作画中，{n} / {of}", thinking: "正在阅读……", restarting: "铅笔断了，正在削一支新的……", stopped: "已停止。", undone: "第 {n} 回合已撤销。",
  attract: "这个模型先前画的", turn: "第 {n} 回合", seconds: "用时 {n} 秒", stamina: "体力", social: "社交", entertainment: "快乐",
  branching: "台上是第 {n} 回合。接下来的话会从这里另起一条胶片。", rewind: "剪掉后面的回合", clip: "第 {n} 回合的画面：{text}", nothing: "台上还是空的，第一回合会画在这里。",
  draining: "服务器正在停止，游戏会保留。", lost: "先前的游戏已不在这台服务器上，新游戏开始了。", noise: "这台服务器没有模型，画面只是噪声。",
  busy: "大家都在画，请稍候再试。", rate_limited: "一分钟内回合太多，歇一会儿吧。", too_many_sessions: "位子满了，请稍后再来。",
  blocked: "这些词这里不画，请换别的。", instruction: "请用不超过 {n} 个字符来说。", turn_running: "这个游戏正在另一个窗口作画。",
  degraded: "模型暂时无法启动，服务器会继续尝试，游戏会保留。", deadline: "时间太长了，请再试一次。", worker_failed: "模型画这句话时失败了，请换一句。",
  unusable_output: "这张画坏了，请换一句。", storage: "服务器无法保存游戏，请告诉管理员。", internal: "出错了，请再试一次。", no_such_turn: "这个回合已经没有了。",
  engines_mismatch: "这个游戏是另一个模型画的，请开始新游戏。", bundle_mismatch: "这个游戏是另一个模型画的，请开始新游戏。", unknown_session: "这个游戏已经没有了，请开始新游戏。",
  session_closed: "这个游戏已在另一个窗口结束，请开始新游戏。", wrong_token: "这个游戏属于另一个浏览器，请开始新游戏。", ready: "已画好", offers: "已经画好，立即播放", offered: "有几句已经画好，选了就播放。", slip: "空白纸条",
  end: "您的影片会到此结束，无法恢复。继续吗？", stay: "不", go: "是", room: "画面只容得下两位：{who}先离开。",
  live: "自动继续", lives: "故事会自己继续。您说的话会排在下一个。", next: "您的话是下一个。",
  reel: "影片", saveFilm: "保存带字幕的整部影片", copyLink: "复制可重放这个故事的链接", filming: "影片播放一遍，同时保存……", link: "链接", linked: "已复制链接，打开即可重放这个故事。",
  story: "这个链接里有一个 {n} 回合的故事。播放吗？", other: "它由另一个模型画成，看起来会不同。",
  too_large: "太长了。", version: "页面与服务器不匹配，请重新加载。",
};
const JA = {
  photo: "絵や写真から始める", looking: "絵を見ています…", began: "フィルムはこの絵から始まります。次に何が起こりますか。", picture: "この絵は読めません。別のものをどうぞ。", no_encoder: "このモデルは絵から始められません。",
  leave: "ログアウト", skip: "ことばへ", language: "言語", stage: "絵", compose: "次に起こること", progress: "作画の進み", film: "これまでのターン", fresh: "新しいゲーム",
  again: "もう一度", draw: "描く", deal: "おまかせ", cancel: "やめる", what: "次に起こることを言ってください。この機械のモデルが二秒のアニメを描き、物語を覚えています。",
  free: "自分のことばで", save: "mp4 で保存", saving: "保存中 {n} %", saved: "保存しました。",
  strip: "フィルム {n}", holder: "きつねが森をゆっくり歩く、夜になる", empty: "ことばを選んでください…", who: "だれが",
  motion: "何をする", manner: "どのように", place: "どこで", hour: "いつ", clothes: "何を着て", examples: "たとえば", off: "明かりが消えました。つなぎ直しています…",
  starting: "明かりを温めています…", waiting: "あと {n} 人、約 {s} 秒", drawing: "作画中 {n} / {of}", thinking: "読んでいます…",
  restarting: "鉛筆が折れました。削り直しています…", stopped: "止めました。", undone: "ターン {n} を取り消しました。", attract: "このモデルが前に描いたもの", turn: "ターン {n}",
  seconds: "{n} 秒で作画", stamina: "体力", social: "社交", entertainment: "楽しさ", rewind: "後のターンを切り取る",
  branching: "台の上はターン {n}。次のことばは、ここから二本目のフィルムになります。",
  clip: "ターン {n} の絵：{text}", nothing: "台は空です。最初のターンがここに描かれます。", draining: "サーバーが止まります。ゲームは残ります。",
  lost: "前のゲームはもうこのサーバーにありません。新しく始めました。", noise: "このサーバーにはモデルがなく、絵はノイズです。",
  busy: "混み合っています。少し待ってください。", rate_limited: "一分のターンが多すぎます。一息入れてください。",
  too_many_sessions: "満席です。後でもう一度どうぞ。", blocked: "そのことばは描けません。別のことばをどうぞ。",
  instruction: "{n} 文字以内で言ってください。", turn_running: "このゲームは別の窓で作画中です。",
  degraded: "今はモデルを起動できません。サーバーが試し続けます。ゲームは残ります。", deadline: "時間がかかりすぎました。もう一度どうぞ。",
  worker_failed: "この文はうまく描けませんでした。別の文をどうぞ。", unusable_output: "絵が壊れました。別の文をどうぞ。", storage: "サーバーがゲームを保存できません。管理者に知らせてください。",
  internal: "問題が起きました。もう一度どうぞ。", no_such_turn: "そのターンはもうありません。", engines_mismatch: "このゲームは別のモデルが描きました。新しく始めてください。",
  bundle_mismatch: "このゲームは別のモデルが描きました。新しく始めてください。", unknown_session: "このゲームはもうありません。新しく始めてください。",
  session_closed: "このゲームは別の窓で終わりました。新しく始めてください。", wrong_token: "このゲームは別のブラウザーのものです。新しく始めてください。",
  ready: "描けた文", offers: "もう描けている文：すぐに流れます", offered: "もう描けている文があります。選ぶとすぐに流れます。", slip: "空きの紙",
  end: "今のフィルムは終わり、元に戻せません。進みますか。", stay: "いいえ", go: "はい", room: "絵に入るのは二人まで：{who}は外れます。",
  live: "ひとりでに続ける", lives: "物語はひとりでに続きます。言ったことが次になります。", next: "次はあなたの文です。",
  reel: "フィルム", saveFilm: "文を添えてフィルム全体を保存", copyLink: "この物語をもう一度流すリンクをコピー", filming: "一度流しながら保存します…", link: "リンク", linked: "この物語をもう一度流すリンクをコピーしました。",
  story: "このリンクには {n} ターンの物語があります。流しますか。", other: "別のモデルが描いたもので、見た目は変わります。",
  too_large: "長すぎます。", version: "ページとサーバーが合いません。読み込み直してください。",
};
const STRINGS = { en: EN, zh: ZH, ja: JA };

// What the server answers, by its code: see PROTOCOL.md, Answers. What changes, then what is not possible.
const CHANGES = {
  came: ["{people} came", "{people}来了", "{people}が来た"],
  left: ["{people} left", "{people}走了", "{people}が去った"],
  motion: ["{people} {value} now", "{people}：{value}", "{people}：{value}"],
  level: ["{value}", "{value}", "{value}"],
  place: ["now {value}", "现在在{value}", "今は{value}"],
  hour: ["it is {value}", "现在是{value}", "今は{value}"],
  clothes: ["{people} {value} now", "{people}穿上了{value}", "{people}は{value}を着た"],
};
const LIMITS = {
  nothing_understood: ["Nothing of this was understood. Say who does what; the words are listed here.", "这句话没有看懂。请说谁做什么，能用的词都列在这里。", "わかりませんでした。だれが何をするか言ってください。使えることばはここにあります。"],
  not_understood: ["not understood: {words}", "没有看懂：{words}", "わからないことば：{words}"],
  not_all_understood: ["not all understood", "没有全部看懂", "わからないところがあります"],
  substitute: ["{value}, for: {words}", "用“{value}”代替：{words}", "「{value}」で代わりに：{words}"],
  no_motion: ["no motion was named: {value}", "没有说做什么，所以：{value}", "動きがないので：{value}"],
  second_motion: ["a picture has one motion: {value}", "一幅画面只有一个动作：{value}", "一枚の絵に動きは一つ：{value}"],
  unsure: ["not sure that this is what you meant", "不确定这是否是你的意思", "この通りでよいか、自信がありません"],
  left_out: ["a picture has room for two, so not for {people}", "画面只容得下两位，没有画{people}", "絵に入るのは二人まで。{people}は入りません"],
  crowd: ["a picture has room for two, one of each", "画面只容得下两位，每人一个", "絵に入るのは二人まで、同じ人は一人"],
  nothing_changes: ["nothing changes", "没有变化", "何も変わりません"],
  cut: ["only the first {value} words are read", "只读前 {value} 个词", "はじめの {value} 語だけ読みます"],
  nobody_seen: ["nobody was recognised in the picture; these can be: {people}", "图片里没有认出谁。能认出的有：{people}", "絵の中にだれもわかりませんでした。わかるのは：{people}"],
};

// word: [Chinese, Japanese]
const WORDS = {
  walk: ["走", "歩く"], run: ["跑", "走る"], jump: ["跳", "跳ぶ"], stand: ["站着", "立つ"], wave: ["挥手", "手を振る"], dance: ["跳舞", "踊る"], sit: ["坐", "座る"],
  "lie down": ["躺下", "横になる"], fly: ["飞", "飛ぶ"], bow: ["鞠躬", "おじぎ"], barely: ["几乎不动", "かすかに"], gently: ["轻轻地", "やさしく"],
  smoothly: ["流畅地", "なめらかに"], quickly: ["快快地", "すばやく"], wildly: ["狂野地", "激しく"], meadow: ["草地", "草原"], forest: ["森林", "森"],
  beach: ["海滩", "浜辺"], city: ["城市", "街"], room: ["房间", "部屋"], snowfield: ["雪原", "雪原"], desert: ["沙漠", "砂漠"],
  cloudland: ["云上", "雲の国"], day: ["白天", "昼"], night: ["夜晚", "夜"], everyday: ["平常的衣服", "ふだん着"], raincoat: ["雨衣", "レインコート"],
  party: ["礼服", "パーティー服"],
};

export const LANGUAGES = Object.keys(STRINGS);
let language = "en";

export function setLanguage(name) {
  language = LANGUAGES.includes(name) ? name : "en";
  return language;
}

/** The string of a key, `{name}` replaced by values; undefined for an unknown key. */
export function t(key, values = {}) {
  const text = STRINGS[language][key];
  return text === undefined ? undefined : text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** The server's answer in the visitor's language: [what changes, what is not possible]. */
export function told(answer) {
  const at = LANGUAGES.indexOf(language), list = (names) => names?.map(label).join(["、", "と"][at - 1] ?? " and ");
  const form = (code, value, people) => (at ? label(value) : (FORMS[code] ?? String)(value, people));
  return [CHANGES, LIMITS].map((table) => answer.filter(({ code }) => table[code])
    .map(({ code, people, value, words }) => {
      const said = { people: list(people), value: value && form(code, value, people), words: words?.map((one) => `“${one}”`).join(" ") };
      return table[code][at].replace(/\{(\w+)\}/g, (_, name) => said[name] ?? "");
    }).join(["；", "。"][at - 1] ?? "; "));
}

/** A bundle's words in an English sentence. */
export const does = (motion, people) => (people.length === 1 ? thirdPerson(motion) : motion);
export const where = (place) => `${place === "beach" ? "at" : "in"} the ${place}`;
export const wearing = (clothes) => (clothes === "raincoat" ? "in a raincoat" : `in ${clothes} clothes`);
const FORMS = { motion: does, no_motion: does, second_motion: does, substitute: does, place: where, clothes: wearing };

function thirdPerson(motion) {
  const [verb, ...rest] = motion.split(" ");
  const ending = /[^aeiou]y$/.test(verb) ? verb.slice(0, -1) + "ies" : /(s|x|z|ch|sh|o)$/.test(verb) ? verb + "es" : verb + "s";
  return [ending, ...rest].join(" ");
}

/** A bundle's word as the visitor sees it. What is sent is always the bundle's own word. */
export function label(word) {
  const found = WORDS[word];
  return !found || language === "en" ? word : found[language === "zh" ? 0 : 1];
}
