// The words of pocket, as in words.jpg. By docs/page_pictures.py.
export const PICTURED = ["Mirel", "Dovan", "Zelki", "Bixo", "Tofi", "walk", "run", "jump", "wave", "dance", "sit", "lie down", "fly", "bow", "meadow", "forest", "beach", "city", "room", "snowfield", "desert", "cloudland", "day", "night"];
