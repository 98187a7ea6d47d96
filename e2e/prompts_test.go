//go:build e2e_model

package e2e

import "fmt"

const rivers = `The Rhine rises in the Swiss Alps, forms the border between France and Germany, and reaches the North Sea in the Netherlands after about 1,230 kilometres. It has been a trade route since Roman times. Today it carries more goods than any other river in Europe: ore, coal, grain, oil products and containers. Low water in dry summers stops part of that traffic.`

// prompts are the real input: forty different ones, which differ in their
// first forty characters, since the usage log keeps the beginning of each.
var prompts = []string{
	"What is the capital of France?",
	"Name three primary colours.",
	"Who wrote the play Romeo and Juliet?",
	"How many minutes are there in a day?",
	"Write a Go function that adds two integers.",
	"Write a Python one-liner that reverses the string s = \"héllo\".",
	"Explain in one sentence what a semaphore is.",
	"Give a synonym for the word quick.",
	"Summarise in one sentence: " + rivers,
	"List the goods named here: " + rivers,
	"Where does the river of this text rise? " + rivers,
	"Translate the first sentence into German: " + rivers,
	"Was ist die Hauptstadt von Österreich?",
	"Schreibe einen Satz über den Frühling in München.",
	"Quelle est la capitale de l'Italie ?",
	"Écris une phrase sur la forêt en été.",
	"¿Cuál es el océano más grande del mundo?",
	"Qual è il fiume più lungo d'Italia?",
	"日本の首都はどこですか？",
	"中国最长的河流是哪一条？",
	"Какая столица России? Ответь одним словом.",
	"ما هي عاصمة مصر؟",
	"מהי בירת ישראל?",
	"भारत की राजधानी क्या है?",
	"대한민국의 수도는 어디입니까?",
	"Ποια είναι η πρωτεύουσα της Ελλάδας;",
	"What does this emoji mean: 👩‍🚀🚀🌍?",
	"Complete the series: 1, 1, 2, 3, 5, 8,",
	"Fix this SQL:\nSELCT name FORM users WHER id = 1;",
	"What does this shell line print?\n  echo \"$HOME\" | tr 'a-z' 'A-Z' \\\n    | head -n1",
	"Is this valid JSON? {\"a\": [1, 2, {\"b\": null}], \"c\": \"\\u00e9\\n\"}",
	"Explain this regular expression: ^\\d{3}-\\d{4}$",
	"Write a haiku about the sea.",
	"Name the chemical symbol of gold & of silver <both>.",
	"Which is larger, 9.9 or 9.11? Answer with the number.",
	"Turn into a bullet list: apples; pears; plums.",
	"Classify the sentiment (positive or negative): \"I loved every minute of it!\"",
	"Extract the e-mail address: write to Ada <ada@example.org> by noon.",
	"Describe the differences between TCP and UDP in two lines.",
	"Good morning! Please greet me back, in a cafe\u0301 tone.", // a combining accent
}

// pressurePrompt is the n-th prompt of the ingestion queue that interactive
// calls are held against.
func pressurePrompt(n int) string {
	return fmt.Sprintf("Document %04d: describe in one sentence what a river is.", n)
}
