// A picture of the visitor's, from a file that is chosen or dropped on the page.

const $ = (id) => document.getElementById(id);

/** take(file): one was chosen or dropped. taken(): whether the page takes any now. */
export function listen(take, taken) {
  $("photo").onclick = () => $("file").click();
  $("file").onchange = () => {
    if ($("file").files[0]) take($("file").files[0]);
    $("file").value = "";
  };
  for (const kind of ["dragover", "dragleave", "drop"]) {
    addEventListener(kind, (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      document.body.classList.toggle("dropping", kind === "dragover" && taken());
      if (kind === "drop" && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
    });
  }
}

/** A file, drawn upright as a JPEG of a clip's shape {width, height}, whatever the browser can show. */
export async function jpeg(file, { width, height }) {
  const source = await createImageBitmap(file), canvas = document.createElement("canvas");
  const scale = Math.max(width / source.width, height / source.height); // the middle, of twice the clip's size at most
  const grown = Math.min(2, 1 / scale) || 1;
  canvas.width = Math.max(16, Math.round(width * grown));
  canvas.height = Math.max(16, Math.round(height * grown));
  const paper = canvas.getContext("2d"), by = scale * (canvas.width / width);
  paper.fillStyle = "#fff";
  paper.fillRect(0, 0, canvas.width, canvas.height);
  paper.drawImage(source, (canvas.width - source.width * by) / 2, (canvas.height - source.height * by) / 2, source.width * by, source.height * by);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.95));
}
