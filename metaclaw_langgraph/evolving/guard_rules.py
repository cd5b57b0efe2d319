"""What a skill must not say, and what a person should look at first.

The rules are a floor, not a wall: they know the usual words of an attack, and an attacker can
choose others.
"""

from __future__ import annotations

import re
from functools import partial

from metaclaw_langgraph.evolving.guard_phrases import Rule, rule

__all__ = ["NEGATION", "RULES"]

NEGATION = re.compile(r"\b(?:never|not|don't|avoid|nobody|refuse to|no need to)\b[^.!?\n]{0,50}\Z")
"""Before a match: what follows is advice against it, or pretends to be."""

_LISTS = {
    "drop": """ignore disregard forget override overrule bypass discard neglect abandon set_aside
        stop_following stop_obeying pay_no_attention_to no_longer_follow
        (?:do_not|don'?t|never|not)_(?:follow|obey)""",
    "old": """previous prior above earlier preceding former foregoing original initial all any every
        your system safety developer other existing current""",
    "orders": """instructions? rules? prompts? guidelines? directives? directions guardrails?
        safeguards? restrictions orders programming""",
    "user": "user customer client person human operator owner them anyone anybody",
    "secrets": r"""passwords? passphrases? passcodes? api[\s-]?keys? access_tokens? secret_keys?
        private_keys? credentials? env(?:ironment)?_(?:variables?|vars?) \.env ssh_keys?
        seed_phrases? recovery_(?:phrases?|codes?) one[\s-]time_(?:codes?|passwords?) 2fa otp
        mfa_codes? verification_codes? pin_(?:codes?|numbers?) cvv card_numbers? bearer_tokens?
        session_(?:cookies?|tokens?) login_(?:data|details) id[^\w]?rsa /etc/(?:passwd|shadow)
        connection_strings?""",
    "pass_on": """ask request demand collect obtain gather harvest print reveal display include send
        share output echo dump tell copy export enter types? post give repeat write_out hand_over
        paste confirm quote forward email e-mail upload""",
    "telling": """tell telling inform informing notify notifying alert alerting warn warning let
        letting""",
    "deed": """change copy transfer upload address rule note step skill instruction message fee
        forwarding switch""",
    "target": """pages? sites? websites? urls? links? address addresses scripts? files?
        instructions? config configuration documents? attachments? packages? payload image
        installer archive repository""",
    "checks": """checks? verification validation safety filters? confirmations? approvals? reviews?
        limits? authentication authori[sz]ation 2fa mfa logging audits? firewall certificates? ssl
        tls warnings? tests? moderation identity signatures? sandbox antivirus""",
    "future": """requests? users? customers? conversations? tasks? questions? answers? repl(?:y|ies)
        sessions? messages? orders? responses? chats? runs? tickets? [ie]nquir(?:y|ies) quotes?
        emails? people everyone anybody""",
    "boss": """developers? admins? administrators? management operators? vendor maintainers?
        compliance security_team security_department it_department headquarters head_office ceo cto
        supervisor openai anthropic google microsoft owner""",
    "said": """says? said asks? asked requires? required requested approved authori[sz]ed confirmed
        wants? instructs? instructed orders? ordered decided announced mandates? told""",
}

_refuse = partial(rule, severity="refuse", lists=_LISTS)
_review = partial(rule, severity="review", lists=_LISTS)

_OVERRIDE = _refuse(
    "override",
    detail="tells the agent to drop its instructions",
    phrases=r"""
        <drop> ~2 <old> ~2 <orders>
        <drop> ~2 <orders> ~2 above|before|earlier|given|so_far|you_were
        <drop> ~1 everything|anything|all ~4 above|told|previously|so_far|until_now
        you_are_now(?!_(?:ready|done|finished|able|set|logged|connected|on|at|inside))
        your new|real|true|actual|only|updated|hidden <orders>|tasks?|purpose|goals?|role|mission
        new_(?:system_)?(?:instructions|directives|orders) are|follow|from|begin
        obey|follow|accept|execute ~1 new ~1 instructions|directives|orders
        overrides?|supersedes?|replaces?|outranks? ~3 <old> ~1 <orders>|messages?|polic(?:y|ies)
        (?:takes?|has|have)_(?:precedence|priority)_over ~3 <old> ~1 <orders>|messages?
        developer|god|debug|admin|unrestricted|maintenance mode is|on|enabled|active|activated
        jailbr[eo]\w{0,8}|do_anything_now
        pretend_(?:that_)?you_(?:are|have|were)
        act|behave|respond|answer ~1 as_if|as_though|without ~4 <orders>|limits|filters
        reveal|print|repeat|output|show|display|disclose|quote ~3 system_(?:prompt|message)
        reveal|print|repeat|output|show|display ~2 (?:hidden|initial|your)_instructions
        (?:ignorier|vergiss|missacht)\w{0,4} ~4 (?:anweisung|regel|vorgabe)\w{0,4}
        (?:ignore|oublie)[zr]? ~4 instructions|consignes|regles
        (?:ignor|olvid|esquec|dimentic)\w{1,4} ~4 (?:instruc|istruzion|regl|regra|regol)\w{1,6}
        (?:игнорир|забуд)\w{1,8} ~4 (?:инструкц|указани|правил)\w{0,5}
        (?:ignoruj|zignoruj|zapomnij)\w{0,3} ~4 (?:instrukcj|polece|zasad)\w{0,5}
    """,
    patterns=(
        r"\bnew\s{1,4}(?:system\s{1,4})?(?:instructions|directives|orders)\s{0,3}:",
        r"(?:忽略|无视|忘记|忘掉).{0,10}(?:指令|指示|规则|说明)",
        r"(?:指示|命令|ルール).{0,6}(?:無視|忘れ)|(?:지시|명령|규칙).{0,6}(?:무시|잊)",
    ),
    disguised=True,
)

_CONCEALMENT = _refuse(
    "concealment",
    detail="tells the agent to hide what it does",
    phrases=r"""
        not|don'?t|never|without ~1 <telling> ~1 <user> about|know|first|anything|of_this
        not|don'?t|never|without ~1 <telling> ~1 <user> that_(?:you|this|it)
        not|don'?t|never|without ~1 mention|reveal|disclose this|it|these|that_you|the_(?:<deed>)s?
        not|never|without ~1 mentioning|revealing|disclosing this|it|these|the_(?:<deed>)s?
        keep|leave ~2 secret|hidden|between_us|to_yourself|unmentioned|from_the_user
        keep|leave ~2 out_of_the_(?:log|answer|reply|summary|report)
        secretly|covertly|surreptitiously|unbeknownst|stealthily|behind_the_user'?s_back
        silently|quietly|discreetly|invisibly ~1 send|forward|copy|add|upload|include|bcc|post|run
        silently|quietly|discreetly ~1 append|execute|approve|email|transfer|note|change|remove
        without ~2 (?:user|customer|client)'?s? knowledge|noticing|knowing|consent|awareness
        so_that ~3 (?:does_not|doesn'?t|won'?t|cannot|never)_(?:notice|see|find_out|reali[sz]e|know)
        heimlich|незаметно|тайно|втайне
        ohne ~3 (?:zu_(?:sagen|informieren|erwahnen)|wissen)
        sans ~2 prevenir|le_dire|informer|mentionner
        sin ~2 (?:decir|avisar|informar|mencionar)\w{0,4}
        не (?:говори|сообщай|упоминай)\w{0,3}
    """,
    patterns=(
        r"\b(?:not|don'?t|never|without)\s{1,4}(?:\w{1,24}\s{1,4})?(?:tell|inform|notify|alert|warn)"
        r"(?:ing)?\s{1,4}(?:the\s{1,4})?(?:user|customer|client|owner|anyone|anybody|them)"
        r"\s{0,3}(?:[.,;:!]|$)",
        r"(?:不要|别|勿)(?:告诉|通知|提及)|(?:知らせず|伝えず|言わず)",
    ),
    disguised=True,
)

_CREDENTIALS = _refuse(
    "credentials",
    detail="asks for or passes on credentials",
    phrases=r"""
        <pass_on> ~5 <secrets>
        frag\w{0,3}|bitte\w{0,2} ~5 passwort|kennwort|zugangsdaten
        demande[zr]?|pide|pida|solicita\w{0,3} ~5 mot_de_passe|contrasena|clave
        (?:спроси|запроси|узнай)\w{0,6} ~5 парол\w{0,3}
    """,
    patterns=(r"(?:索要|询问|要求).{0,12}(?:密码|口令)",),
    disguised=True,
)

_TAGS = (
    "system|assistant|user|human|developer|instructions?|skill|metaclaw_skills|tool_call|"
    "tool_response|tool_result|function_calls?|start_of_turn|end_of_turn|think|bos|eos|s"
)

_MARKUP = _refuse(
    "markup",
    detail="holds the markup of a prompt",
    phrases="begin|end|start of|the|new ~2 system_(?:prompt|message)",
    patterns=(
        r"<\|\s{0,3}[a-z_]{2,24}\s{0,3}\|>",
        r"\[/?(?:inst|system|sys)\]|<</?sys>>",
        rf"<\s{{0,3}}/?\s{{0,3}}(?:{_TAGS})\b[^<>]{{0,80}}>",
        r"^[\s>*#_`~-]{0,8}(?:system|assistant|developer|human|user|ai)"
        r"(?:\s{1,4}(?:message|prompt|note|override|update))?[*_`]{0,2}\s{0,3}:",
        r"^#{1,6}\s{0,3}(?:instruction|response)s?\s{0,3}:",
    ),
)

_HIDDEN = _refuse(
    "hidden text",
    detail="holds text that a reader does not see",
    phrases="",
    patterns=(
        r"<!--|-->|^\s{0,3}\[(?://|comment)\]:|\[\s{0,4}\]\((?!\s{0,4}\))",
        r"\b(?:display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden"
        r"|(?:font-size|opacity)\s{0,3}:\s{0,3}0\b)",
        r"\bdata:[a-z]{2,20}/[a-z0-9.+-]{2,40}[;,]",
        r"(?:&#x?[0-9a-f]{2,6};\s{0,2}){4}",
        r"(?:\\x[0-9a-f]{2}){4}|(?:\\u[0-9a-f]{4}){3}|(?:%[0-9a-f]{2}){6}",
        r"\b(?:[0-9a-f]{2}[\s:,]){15}[0-9a-f]{2}\b|(?:\b[01]{8}\b\s{0,3}){4}",
        r"(?<!\w)(?:\w[ .*_·-]){5}\w(?!\w)",  # s p a c e d out letters
        r"[^\S\n]{60}|\n(?:[^\S\n]{0,80}\n){14}",  # off the screen
    ),
)

_FETCH = _review(
    "fetch",
    detail="tells the agent to fetch something",
    phrases=r"""
        curl|wget|invoke-webrequest|git_clone|requests\.(?:get|post)|urlopen
        fetch|download|retrieve|load|pull|visit|browse|navigate|open ~4 <target>
        scrape|consult|import|read|follow|go_to ~4 <target>
        fetch|download|retrieve|load|pull|import ~5 from
        visit|browse|navigate_to|go_to ~1 the|our|this
    """,
)

_SEND = _review(
    "send",
    detail="tells the agent to send something",
    phrases=r"""
        send|sending|post|forward|upload|e-?mail|mail|bcc|cc|transmit|submit|relay ~7 to|at|via|into
        uploaded|forwarded|mailed|posted|sent ~4 to|at|via|into
        share|copy|publish|report|push|deliver|store|save|log|append|mirror|sync ~6 outside|external
        shares?|copy|publish|report|push|deliver|store|save|log|sync ~6 webhook|endpoint|server
        shares?|copy|publish|report|push|deliver|store|save ~6 partner|mailbox|inbox|bucket|channel
        bcc|webhook|exfiltrat\w{1,5}|blind_copy|carbon_copy
    """,
)

_RUN = _review(
    "run",
    detail="tells the agent to run something",
    phrases=r"""
        execute|run|eval|evaluate|invoke|launch ~4 commands?|shell|scripts?|code|binary|program
        execute|run|eval|evaluate|invoke|launch ~4 installer|terminal|cmd|payload|macro|one-?liner
        sudo|chmod|crontab|powershell|subprocess|os\.system|docker_run
        pip3?|npm|yarn|apt|apt-get|brew|conda|gem|cargo install|add
        install ~2 package|module|extension|plugin
        drop table|database
        delete_from|truncate_table
    """,
    patterns=(
        r"\brm\s{1,4}-|\b(?:eval|exec)\(|\b(?:ba|z)?sh\s{1,3}-c\b|\|\s{0,3}(?:ba|z)?sh\b"
        r"|\bpython3?\s{1,4}-c\b",
    ),
)

_TLDS = (
    "com|net|org|info|biz|io|ai|app|dev|co|me|xyz|site|online|top|shop|store|club|cloud|tech|link|"
    "live|pro|ru|cn|uk|de|fr|eu|us|nl|es|it|pl|ch|at|jp|kr|br|in|ca|au|tk|cc|tv|ly|gg|example|"
    "invalid|test|onion|zip|mov|page|support|help|email"
)

_LINK = _review(
    "link",
    detail="names an address",
    phrases=r"\w{2,40} dot com|net|org|io|info|example",
    patterns=(
        r"\b(?:https?|hxxps?|ftp|file|ssh|s3|javascript|mailto|tel|wss?):|\bwww\.",
        r"(?<![\w.@/-])[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9-]{1,63}){0,4}"
        rf"\.(?:{_TLDS})\b(?![\w(-])",
        r"[\w.+-]@[\w-]{1,63}\.\w",
        r"\s?[\[({]\s{0,3}(?:at|@|dot|\.)\s{0,3}[\])}]\s?\w",
        r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b",
        r"(?<![\w.])\+\d[\d ()./-]{7,18}\d|\b\d{3}[-. ]\d{3}[-. ]\d{4}\b"
        r"|\(\d{2,5}\)\s{0,2}\d{3}[\d -]{2,8}|\b0\d{2,4}[ /-]\d{5,9}\b",
    ),
)

_PAYMENT = _review(
    "payment",
    detail="concerns money",
    phrases=r"""
        transfer|wire|pay|remit|payout|deposit|credit|route ~6 to|into|onto
        refund|refunds|refunding|compensate|reimburse ~5 without|automatically|immediately|at_once
        refund|refunds|refunding|compensate|reimburse ~5 any|all|every|always|regardless|in_full
        gift_cards?|iban|bank_(?:account|details)|bitcoin|crypto\w{0,12}|wallet
        change|update|replace ~3 payee|account_number|beneficiary|payment_details
        waive|credit|discount ~4 fees?|charges?|percent|invoice|everything
    """,
    patterns=(r"\b0x[0-9a-f]{20,64}\b|\b[a-z]{2}\d{2}(?:\s?[a-z0-9]{4}){3,7}\b",),
)

_PERMISSION = _review(
    "permission",
    detail="loosens a check or grants a right",
    phrases=r"""
        approved?|accept|authori[sz]e|allow|confirm ~2 all|any|every|without|automatically|always
        approved?|accept|authori[sz]e|allow|confirm ~2 immediately|at_once|whatever
        grant|give|add|extend|assign|make ~5 access|admin|administrator|permissions?|roles?|rights
        grant|give|add|extend|assign|make ~5 privileges|owner|root
        disable|turn_off|switch_off|skip|bypass|deactivate|omit|waive|remove|suspend ~4 <checks>
        relax|lift|ignore|lower|no_need_for|dispense_with ~4 <checks>
        without ~2 verification|approval|confirmation|confirming|checking|asking|review|reviewing
        without ~2 verifying|identification|receipt|proof|questions|permission|authori[sz]ation
        no ~1 verification|approval|confirmation|id|receipt|proof|check|review ~1 needed|required
        (?:receipts?|proof|approval)_(?:is|are)_not_(?:needed|required|necessary)
    """,
)

_STANDING = _review(
    "standing order",
    detail="wants to hold for everything from now on",
    phrases=r"""
        for|in|to|with|on|during|at_the_end_of every|all|any ~2 <future>
        end|begin|start|close|finish|sign|open every|all|each
        all|any|every|each future
        future <future>
        permanently|forever|henceforth|from_now_onwards?|regardless_of
        from now|today|this_day|this_moment|this_point on
        whatever_the_(?:user|customer)|no_matter_(?:what|who|which|how)
        ab_sofort|desormais|dorenavant|a_partir_de_ahora|d'ora_in_poi|отныне
    """,
    patterns=("今后|从现在起|今後",),
)

_AUTHORITY = _review(
    "authority",
    detail="speaks in somebody's name",
    phrases=r"""
        <boss> ~2 <said>
        (?:correction|order|note|message)_(?:by|from) ~1 <boss>
        authori[sz]ed|approved|ordered|mandated|instructed|requested|cleared by ~1 the|our|your|a
        as_(?:your|the)_(?:developer|admin|administrator|operator|owner|creator)|on_behalf_of
    """,
)

_ENCODED = _review(
    "encoded",
    detail="speaks of decoding something",
    phrases=r"""
        decode|decrypt|unscramble|deobfuscate ~6 follow|execute|run|obey|base64|hex|rot13|morse
        base64|rot13|hexadecimal|morse ~4 decoded?|decrypt|instructions|message
    """,
)

RULES: tuple[Rule, ...] = (
    *(_OVERRIDE, _CONCEALMENT, _CREDENTIALS, _MARKUP, _HIDDEN),
    *(_FETCH, _SEND, _RUN, _LINK, _PAYMENT, _PERMISSION, _STANDING, _AUTHORITY, _ENCODED),
)
