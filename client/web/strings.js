// The page's words in three languages, and the translated labels of words that bundles commonly list.

const EN = {
  skip: "To the words", language: "Language", stage: "The picture", compose: "What happens next", progress: "Drawing",
  film: "The turns so far", fresh: "New game", again: "Play again", draw: "Draw it", deal: "Surprise me", cancel: "Stop",
  what: "Say what happens next. A model on this machine draws two seconds of cartoon, and remembers the story.",
  free: "or in your own words", holder: "the fox sneaks through the city, it is getting dark", empty: "Choose some words …",
  who: "who", motion: "does", manner: "how", place: "where", hour: "when", clothes: "wearing", examples: "For example",
  off: "The lamp is off. Connecting again …", starting: "The lamp is warming up …", waiting: "{n} before you", drawing: "Drawing, {n} of {of}",
  thinking: "Reading …", restarting: "The pencil broke; a new one is being sharpened …", stopped: "Stopped.", attract: "Drawn earlier by this model",
  turn: "Turn {n}", seconds: "drawn in {n} s", stamina: "stamina", social: "social", entertainment: "fun",
  rewindAsk: "Turn {n} is on the table.", rewind: "Go on from here, forget the later ones", picture: "The clip of turn {n}: {text}",
  nothing: "The table is empty. The first turn will be drawn here.", draining: "The server is stopping; the game is kept.",
  lost: "The earlier game is not on this server any more. A new one has begun.", noise: "This server plays without a model: the pictures are only noise.",
  busy: "Many people are drawing. Try again in a moment.", rate_limited: "Too many turns in a minute. Take a breath.",
  too_many_sessions: "The table is full. Try again later.", blocked: "These words are not played here. Choose others.",
  instruction: "Say a little less, or a little more.", turn_running: "This game is drawing in another window.",
};
const ZH = {
  skip: "跳到选词", language: "语言", stage: "画面", compose: "接下来发生什么", progress: "作画进度", film: "已画的回合", fresh: "新游戏",
  again: "再放一遍", draw: "画出来", deal: "随机来一个", cancel: "停止", what: "说说接下来发生什么。这台机器上的模型会画出两秒钟的动画，并记住故事。",
  free: "或者用自己的话（英文）", holder: "the fox sneaks through the city, it is getting dark", empty: "请选几个词……", who: "谁", motion: "做什么",
  manner: "怎样", place: "在哪里", hour: "何时", clothes: "穿什么", examples: "例如", off: "灯灭了，正在重新连接……", starting: "灯正在预热……",
  waiting: "前面还有 {n} 位", drawing: "作画中，{n} / {of}", thinking: "正在阅读……", restarting: "铅笔断了，正在削一支新的……", stopped: "已停止。",
  attract: "这个模型先前画的", turn: "第 {n} 回合", seconds: "用时 {n} 秒", stamina: "体力", social: "社交", entertainment: "快乐",
  rewindAsk: "台上是第 {n} 回合。", rewind: "从这里继续，忘掉后面的", picture: "第 {n} 回合的画面：{text}", nothing: "台上还是空的，第一回合会画在这里。",
  draining: "服务器正在停止，游戏会保留。", lost: "先前的游戏已不在这台服务器上，新游戏开始了。", noise: "这台服务器没有模型，画面只是噪声。",
  busy: "大家都在画，请稍候再试。", rate_limited: "一分钟内回合太多，歇一会儿吧。", too_many_sessions: "位子满了，请稍后再来。",
  blocked: "这些词这里不画，请换别的。", instruction: "请说得短一点，或多说一点。", turn_running: "这个游戏正在另一个窗口作画。",
};
const JA = {
  skip: "ことばへ", language: "言語", stage: "絵", compose: "次に起こること", progress: "作画の進み", film: "これまでのターン", fresh: "新しいゲーム",
  again: "もう一度", draw: "描く", deal: "おまかせ", cancel: "やめる", what: "次に起こることを言ってください。この機械のモデルが二秒のアニメを描き、物語を覚えています。",
  free: "自分のことばで（英語）", holder: "the fox sneaks through the city, it is getting dark", empty: "ことばを選んでください…", who: "だれが",
  motion: "何をする", manner: "どのように", place: "どこで", hour: "いつ", clothes: "何を着て", examples: "たとえば", off: "明かりが消えました。つなぎ直しています…",
  starting: "明かりを温めています…", waiting: "あと {n} 人", drawing: "作画中 {n} / {of}", thinking: "読んでいます…",
  restarting: "鉛筆が折れました。削り直しています…", stopped: "止めました。", attract: "このモデルが前に描いたもの", turn: "ターン {n}",
  seconds: "{n} 秒で作画", stamina: "体力", social: "社交", entertainment: "楽しさ", rewindAsk: "台の上はターン {n}。", rewind: "ここから続け、後は忘れる",
  picture: "ターン {n} の絵：{text}", nothing: "台は空です。最初のターンがここに描かれます。", draining: "サーバーが止まります。ゲームは残ります。",
  lost: "前のゲームはもうこのサーバーにありません。新しく始めました。", noise: "このサーバーにはモデルがなく、絵はノイズです。",
  busy: "混み合っています。少し待ってください。", rate_limited: "一分のターンが多すぎます。一息入れてください。",
  too_many_sessions: "満席です。後でもう一度どうぞ。", blocked: "そのことばは描けません。別のことばをどうぞ。",
  instruction: "もう少し短く、または長く言ってください。", turn_running: "このゲームは別の窓で作画中です。",
};
const STRINGS = { en: EN, zh: ZH, ja: JA };

// word: [Chinese, Japanese]
const WORDS = {
  walk: ["走", "歩く"], run: ["跑", "走る"], jump: ["跳", "跳ぶ"], wave: ["挥手", "手を振る"], dance: ["跳舞", "踊る"], sit: ["坐", "座る"],
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

/** The string of a key, `{name}` replaced by values; undefined for a key that there is not. */
export function t(key, values = {}) {
  const text = STRINGS[language][key];
  return text === undefined ? undefined : text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** A bundle's word as the visitor sees it. What is sent is always the bundle's own word. */
export function label(word) {
  const found = WORDS[word];
  return !found || language === "en" ? word : found[language === "zh" ? 0 : 1];
}
