/**
 * Pictures in the programs that the code tab writes: a program reads each from its file. While a program is put together a
 * mark stands in the place of a picture's data URL; the mark then gives way to what reads the file in that language.
 */

import type { RequestFields } from "../request/body";
import type { Picture } from "../state";

/** A picture in a program. */
export interface PictureFile {
  /** What stands for its data URL in the fields and in the body. */
  mark: string;
  name: string;
  /** Its kind: "image/png". */
  type: string;
}

/** `fields` with a mark in each picture's place. */
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

/** `code` with a call of `name` in the place of each mark, which stands there as a text in double quotes. */
export function calls(code: string, name: string, files: readonly PictureFile[]): string {
  return files.reduce((text, { mark, type, name: file }) => text.replace(JSON.stringify(mark), () => `${name}(${JSON.stringify(file)}, ${JSON.stringify(type)})`), code);
}

export const PYTHON_READER = `def picture(path, kind):
    return f"data:{kind};base64," + base64.b64encode(pathlib.Path(path).read_bytes()).decode()
`;

export const TYPESCRIPT_READER = `const picture = (path: string, kind: string) => \`data:\${kind};base64,\${readFileSync(path, "base64")}\`;`;

/**
 * Commands that write `body`, with the files in base64 in the marks' places. Line breaks inside its texts
 * are curl's to take out: \`-d @-\` does.
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
