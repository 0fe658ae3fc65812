/** The pictures of the request: chosen, dropped or pasted. Thumbnails, each with a remove button. */

import { signal } from "@preact/signals";
import { useRef } from "preact/hooks";

import { pictures, seesImages } from "../state";
import "./pictures.css";

/** Image types that the server accepts. */
const KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/** Error for the last files; "" if all of them were accepted. */
const refused = signal("");

/** Adds the files that are pictures; sets an error that names the others. */
export async function addPictures(files: Iterable<File>): Promise<void> {
  const [taken, left]: [File[], File[]] = [[], []];
  for (const file of files) (KINDS.includes(file.type) ? taken : left).push(file);
  refused.value = left.length ? `No PNG, JPEG, WebP or GIF: ${left.map(({ name }) => name).join(", ")}` : "";
  const added = await Promise.all(taken.map(async (file) => ({ name: file.name, url: await dataUrl(file) })));
  pictures.value = [...pictures.value, ...added];
}

/** The dropped or pasted files; none if the model does not accept images, or for text. */
export function filesOf(data: DataTransfer | null): File[] {
  return seesImages.value && data ? [...data.files] : [];
}

export function Pictures() {
  const input = useRef<HTMLInputElement>(null);
  if (!seesImages.value && pictures.value.length === 0) return null;
  return (
    <div class="field pictures" role="group" aria-labelledby="pictures-title">
      <span id="pictures-title" class="label">
        Pictures
      </span>
      <ul>
        {pictures.value.map((picture, index) => (
          <li key={index}>
            <img src={picture.url} alt={picture.name} title={picture.name} />
            <button type="button" class="plain" aria-label={`Remove ${picture.name}`} onClick={() => remove(index)}>
              ×
            </button>
          </li>
        ))}
      </ul>
      <div class="add">
        <button type="button" class="small" id="add-picture" onClick={() => input.current!.click()}>
          Add a picture
        </button>
        <span class="quiet" role="status">
          {refused.value || "or drop or paste one"}
        </span>
      </div>
      <input
        ref={input}
        type="file"
        hidden
        multiple
        accept={KINDS.join(",")}
        onChange={(event) => {
          void addPictures([...event.currentTarget.files!]);
          event.currentTarget.value = ""; // the same file may be chosen again
        }}
      />
    </div>
  );
}

function remove(index: number): void {
  pictures.value = pictures.value.filter((_, each) => each !== index);
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
