/**
 * Pictures in generated programs: a program reads each picture from its file. During generation a
 * mark replaces a picture's data URL; it is then replaced by code that reads the file.
 */

import type { RequestFields } from "../request/body";
import type { Picture } from "../state";

/** A picture in a program. */
export interface PictureFile {
  /** Placeholder for its data URL in the fields and in the body. */
  mark: string;
  name: string;
  /** Media type, for example "image/png". */
  type: string;
}

/** `fields` with a mark in place of each picture's data URL. */
export function withMarks(fields: RequestFields, pictures: readonly Picture[]): { fields: RequestFields; files: PictureFile[] } {
  const salt = crypto.getRandomValues(new Uint32Array(4)).join("-");
  const files = pictures.map(({ name, url }, index) => ({ mark: `picture:${salt}:${index}`, name, type: /^data:([^;,]*)/.exec(url)?.[1] ?? "" }));
  let next = 0;
  const messages = fields.messages.map((message) => {
    if (typeof message.content === "string") return message;
    const content = message.content.map((part) => (part.type === "image_url" ? { ...part, image_url: { url: files[next++]!.mark } } : part));
    return { ...message, content };
  });
  return { fields: { ...fields, messages }, files };
}

/** `code` with a call of `name` in place of each mark, which is a string in double quotes there. */
export function calls(code: string, name: string, files: readonly PictureFile[]): string {
  return files.reduce((text, { mark, type, name: file }) => text.replace(JSON.stringify(mark), () => `${name}(${JSON.stringify(file)}, ${JSON.stringify(type)})`), code);
}

export const PYTHON_READER = `def picture(path, kind):
    return f"data:{kind};base64," + base64.b64encode(pathlib.Path(path).read_bytes()).decode()
`;

export const TYPESCRIPT_READER = `const picture = (path: string, kind: string) => \`data:\${kind};base64,\${readFileSync(path, "base64")}\`;`;

/**
 * Shell commands that write `body`, with the files in base64 in place of the marks. `curl -d @-`
 * removes the line breaks that they add inside strings.
 */
export function bodyFromFiles(body: string, files: readonly PictureFile[]): string {
  const pieces: string[] = [];
  let rest = body;
  for (const { mark, name, type } of files) {
    const at = rest.indexOf(mark);
    pieces.push(`cat <<'END'\n${rest.slice(0, at)}data:${type};base64,\nEND`, `base64 < ${shellText(name)}`);
    rest = rest.slice(at + mark.length);
  }
  pieces.push(`cat <<'END'\n${rest}\nEND`);
  return `{\n${pieces.join("\n")}\n}`;
}

function shellText(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
